#pragma once

#include <arrow/filesystem/filesystem.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>

#include <memory>

namespace trireme::arrow {

// From its beginning, decompressed where its name says that it is compressed.
::arrow::Result<std::shared_ptr<::arrow::io::InputStream>> open_stream(::arrow::fs::FileSystem& filesystem,
                                                                       const ::arrow::fs::FileInfo& file);

// All of it, as it is.
::arrow::Result<std::shared_ptr<::arrow::Buffer>> read_whole(::arrow::fs::FileSystem& filesystem,
                                                             const ::arrow::fs::FileInfo& file);

}  // namespace trireme::arrow
