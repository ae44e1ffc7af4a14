#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/files.h"
#include "trireme/value.h"

// The file that makes a folder a checkpoint. docs/checkpoint_format.md describes the format.

namespace trireme::checkpoint {

inline constexpr const char* kManifestName = ".trireme_manifest.json";
// The user's metadata. It may change after the commit, so it is stored with the files but not listed in the manifest.
inline constexpr const char* kMetadataName = ".metadata.json";

// The state of a checkpoint. The names are used in the file and in Python's ReportedCheckpointStatus.
enum class Status { kCommitted, kPendingValidation, kValidated, kValidationTimeout, kValidationFailed };
const char* to_string(Status status);
base::Result<Status> status_from(std::string_view name);

struct Manifest {
  std::int64_t index = 0;  // of the report
  int attempt = 0;
  double time = 0;  // seconds since 1970
  Metrics metrics;
  Status status = Status::kCommitted;
  Value validation;  // input of the validation; null: none
  Dict positions;    // positions in the data at the time of the report, by name
  std::vector<storage::FileRecord> files;

  bool operator==(const Manifest&) const = default;
};

// Ends with its own checksum.
std::string encode(const Manifest& manifest);
// The error describes the damage. Paths that lead out of the checkpoint's folder are rejected.
base::Result<Manifest> decode_manifest(std::string_view text);

// For messages: [[path, size, xxh3], ...].
List to_list(const std::vector<storage::FileRecord>& files);
base::Result<std::vector<storage::FileRecord>> files_from(const List& list);

}  // namespace trireme::checkpoint
