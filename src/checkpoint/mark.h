#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "storage/files.h"

// The file that lies in a checkpoint's folder until it is committed. It names the report that writes there, and it is
// what tells a folder of ours from one that a user keeps in the run folder: without it, or a manifest, nothing there is
// ours to remove.

namespace trireme::checkpoint {

inline constexpr const char* kUploadingName = ".trireme_uploading";

// The report that a checkpoint comes with. Later ones are greater.
struct Origin {
  int attempt = 0;
  std::int64_t index = 0;

  auto operator<=>(const Origin&) const = default;
};

// Which report writes to the folder, where that is known.
base::Result<std::optional<Origin>> read_mark(storage::Files& files, const std::string& folder);
base::Result<void> write_mark(storage::Files& files, const std::string& folder, const std::optional<Origin>& origin);

// Of a folder without a manifest.
enum class Owner {
  kOurs,    // it has the mark, or the mark was on its way
  kNobody,  // there is nothing in it
  kUser,
};
base::Result<Owner> owner_of(storage::Files& files, const std::string& folder);

}  // namespace trireme::checkpoint
