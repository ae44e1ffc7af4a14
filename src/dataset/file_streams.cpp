#include "file_streams.h"

#include <arrow/buffer.h>
#include <arrow/io/compressed.h>
#include <arrow/util/compression.h>

#include <utility>

namespace trireme::dataset {

::arrow::Result<std::shared_ptr<::arrow::io::InputStream>> open_stream(::arrow::fs::FileSystem& filesystem,
                                                                       const ::arrow::fs::FileInfo& file) {
  ARROW_ASSIGN_OR_RAISE(auto raw, filesystem.OpenInputStream(file));
  const auto& path = file.path();
  for (const auto& [ending, compression] : {std::pair{".gz", ::arrow::Compression::GZIP},
                                            {".tgz", ::arrow::Compression::GZIP},
                                            {".zst", ::arrow::Compression::ZSTD},
                                            {".bz2", ::arrow::Compression::BZ2},
                                            {".br", ::arrow::Compression::BROTLI},
                                            {".lz4", ::arrow::Compression::LZ4_FRAME}}) {
    if (!path.ends_with(ending)) continue;
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<::arrow::util::Codec> codec, ::arrow::util::Codec::Create(compression));
    ARROW_ASSIGN_OR_RAISE(auto stream, ::arrow::io::CompressedInputStream::Make(codec.get(), raw));
    // The stream only borrows the codec.
    return std::shared_ptr<::arrow::io::InputStream>(stream.get(), [codec, stream](auto*) {});
  }
  return raw;
}

::arrow::Result<std::shared_ptr<::arrow::Buffer>> read_whole(::arrow::fs::FileSystem& filesystem,
                                                             const ::arrow::fs::FileInfo& file) {
  ARROW_ASSIGN_OR_RAISE(auto opened, filesystem.OpenInputFile(file));
  ARROW_ASSIGN_OR_RAISE(const auto size, opened->GetSize());
  return opened->ReadAt(0, size);
}

}  // namespace trireme::dataset
