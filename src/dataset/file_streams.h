#pragma once

#include <arrow/filesystem/filesystem.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>

#include <memory>

namespace trireme::dataset {

// Starts at the beginning, decompressed if the name has the extension of a compressed file.
::arrow::Result<std::shared_ptr<::arrow::io::InputStream>> open_stream(::arrow::fs::FileSystem& filesystem,
                                                                       const ::arrow::fs::FileInfo& file);

// The complete file, not decompressed.
::arrow::Result<std::shared_ptr<::arrow::Buffer>> read_whole(::arrow::fs::FileSystem& filesystem,
                                                             const ::arrow::fs::FileInfo& file);

}  // namespace trireme::dataset
