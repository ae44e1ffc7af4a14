#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "storage/files.h"

// The file that marks a checkpoint's folder until it is committed. It names the report that writes there and identifies
// the folder as ours: a folder in the run folder without the mark or a manifest belongs to the user and is never
// removed.

namespace trireme::checkpoint {

inline constexpr const char* kUploadingName = ".trireme_uploading";

// The report of a checkpoint. Later reports compare greater.
struct Origin {
  int attempt = 0;
  std::int64_t index = 0;

  auto operator<=>(const Origin&) const = default;
};

// The report that writes to the folder, if known.
base::Result<std::optional<Origin>> read_mark(storage::Files& files, const std::string& folder);
base::Result<void> write_mark(storage::Files& files, const std::string& folder, const std::optional<Origin>& origin);

// The owner of a folder without a manifest.
enum class Owner {
  kOurs,    // has the mark, or was about to get it
  kNobody,  // empty
  kUser,
};
base::Result<Owner> owner_of(storage::Files& files, const std::string& folder);

}  // namespace trireme::checkpoint
