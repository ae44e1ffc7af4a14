#pragma once

#include <memory>
#include <string>

#include "trireme/export.h"
#include "trireme/filesystem.h"

namespace arrow::fs {
class FileSystem;
}

// Remote storage for C++ programs, through the Arrow library that the program links. The one in the pip package pyarrow
// is sufficient.

namespace trireme::data {

// Makes RunConfig.storage_path and Checkpoint accept s3://, gs:// (gcs://), abfs:// (abfss://) and hdfs:// URIs. Call
// it at the start of main(), before trireme::init(): workers run the same program. Put the options of a store in the
// URI, in Arrow's syntax: "s3://bucket/runs?region=eu-west-1&endpoint_override=127.0.0.1:9000&scheme=http".
TRIREME_API void register_filesystems();

// Wraps any Arrow file system for trireme::register_filesystem().
TRIREME_API std::shared_ptr<FileSystem> wrap(std::shared_ptr<::arrow::fs::FileSystem> filesystem);

}  // namespace trireme::data

// The former names.
namespace trireme::arrow {
using data::register_filesystems;
using data::wrap;
}  // namespace trireme::arrow
