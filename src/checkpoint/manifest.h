#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/files.h"
#include "trireme/value.h"

// The file that makes a folder a checkpoint. docs/checkpoint_format.md has the format.

namespace trireme::checkpoint {

inline constexpr const char* kManifestName = ".trireme_manifest.json";
// What a user has attached. It may change after the commit, so it is stored with the files and not listed among them.
inline constexpr const char* kMetadataName = ".metadata.json";

// Where a checkpoint stands. The names are those of the file and of Python's ReportedCheckpointStatus.
enum class Status { kCommitted, kPendingValidation, kValidated, kValidationTimeout, kValidationFailed };
const char* to_string(Status status);
base::Result<Status> status_from(std::string_view name);

struct Manifest {
  std::int64_t index = 0;  // of the report
  int attempt = 0;
  double time = 0;  // seconds since 1970
  Metrics metrics;
  Status status = Status::kCommitted;
  Value validation;  // what it is to be validated with; null: nothing
  Dict positions;    // places in the data, by name, as they were when it was reported
  std::vector<storage::FileRecord> files;

  bool operator==(const Manifest&) const = default;
};

// Ends with a checksum of itself.
std::string encode(const Manifest& manifest);
// A damaged one is an error that says how. Paths that lead out of the checkpoint's folder are refused.
base::Result<Manifest> decode_manifest(std::string_view text);

// For messages: [[path, size, xxh3], ...].
List to_list(const std::vector<storage::FileRecord>& files);
base::Result<std::vector<storage::FileRecord>> files_from(const List& list);

}  // namespace trireme::checkpoint
