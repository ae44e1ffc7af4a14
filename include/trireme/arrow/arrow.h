#pragma once

#include <memory>
#include <string>

#include "trireme/export.h"
#include "trireme/filesystem.h"

namespace arrow::fs {
class FileSystem;
}

// Storage elsewhere for C++ programs, through the Arrow that the program links; the one inside the pip package pyarrow
// is enough.

namespace trireme::arrow {

// RunConfig.storage_path and Checkpoint take s3://, gs:// (gcs://), abfs:// (abfss://) and hdfs:// after this. Call it
// at the beginning of main(), before trireme::init(): workers are the same program. Options of a store come in the URI,
// as Arrow has them: "s3://bucket/runs?region=eu-west-1&endpoint_override=127.0.0.1:9000&scheme=http".
TRIREME_API void register_filesystems();

// Any file system of Arrow, for trireme::register_filesystem().
TRIREME_API std::shared_ptr<FileSystem> wrap(std::shared_ptr<::arrow::fs::FileSystem> filesystem);

}  // namespace trireme::arrow
