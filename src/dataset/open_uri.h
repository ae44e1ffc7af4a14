#pragma once

#include <arrow/filesystem/filesystem.h>

#include <memory>
#include <string>

namespace trireme::dataset {

// Arrow's file system for "s3://bucket/x?region=...", and the path in it.
std::shared_ptr<::arrow::fs::FileSystem> open_uri(const std::string& uri, std::string& path);

}  // namespace trireme::dataset
