#include <arrow/buffer.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/io/file.h>
#include <arrow/io/interfaces.h>
#include <arrow/util/config.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "open_uri.h"
#include "status.h"
#include "trireme/arrow/arrow.h"

namespace trireme::dataset {
namespace {

namespace fs = ::arrow::fs;

constexpr std::int64_t kChunk = std::int64_t{8} << 20;

class ArrowFileSystem final : public FileSystem {
 public:
  explicit ArrowFileSystem(std::shared_ptr<fs::FileSystem> filesystem) : filesystem_(std::move(filesystem)) {}

  std::string type_name() const override { return filesystem_->type_name(); }

  bool exists(const std::string& path) override {
    return check(filesystem_->GetFileInfo(path)).type() != fs::FileType::NotFound;
  }

  std::string read(const std::string& path) override {
    auto file = check(filesystem_->OpenInputFile(path));
    const std::int64_t size = check(file->GetSize());
    std::string content(static_cast<std::size_t>(size), '\0');
    const std::int64_t count = check(file->ReadAt(0, size, content.data()));
    if (count != size) throw std::runtime_error(path + ": unexpected end of file");
    return content;
  }

  void write(const std::string& path, std::string_view content) override {
    auto stream = check(filesystem_->OpenOutputStream(path));
    check(stream->Write(content.data(), static_cast<std::int64_t>(content.size())));
    check(stream->Close());
  }

  // The stream uploads parts as they fill; the object appears when it is closed.
  void upload(const std::string& local_file, const std::string& path) override {
    auto source = check(::arrow::io::ReadableFile::Open(local_file));
    auto stream = check(filesystem_->OpenOutputStream(path));
    copy(*source, *stream);
    check(stream->Close());
  }

  void download(const std::string& path, const std::string& local_file) override {
    auto source = check(filesystem_->OpenInputStream(path));
    auto target = check(::arrow::io::FileOutputStream::Open(local_file));
    copy(*source, *target);
    check(target->Close());
  }

  std::vector<StoredFile> list_files(const std::string& folder) override {
    std::vector<StoredFile> files;
    for (const auto& info : list(folder, true)) {
      if (!info.IsFile()) continue;
      files.push_back({info.path().substr(folder.size() + 1), static_cast<std::uint64_t>(info.size())});
    }
    return files;
  }

  std::vector<std::string> list_folders(const std::string& folder) override {
    std::vector<std::string> names;
    for (const auto& info : list(folder, false)) {
      if (info.IsDirectory()) names.push_back(info.base_name());
    }
    return names;
  }

  // Real folders must exist; in object stores, where they are only parts of names, this would leave an empty object.
  void make_folder(const std::string& path) override {
    const std::string type = type_name();
    if (type != "s3" && type != "gcs") check(filesystem_->CreateDir(path, true));
  }

  void remove_file(const std::string& path) override {
    if (exists(path)) check(filesystem_->DeleteFile(path));
  }

  void remove_folder(const std::string& path) override {
    if (exists(path)) check(filesystem_->DeleteDir(path));
  }

 private:
  static void copy(::arrow::io::InputStream& source, ::arrow::io::OutputStream& target) {
    while (true) {
      auto chunk = check(source.Read(kChunk));
      if (chunk->size() == 0) return;
      check(target.Write(chunk));
    }
  }

  std::vector<fs::FileInfo> list(const std::string& folder, bool recursive) {
    fs::FileSelector selector;
    selector.base_dir = folder;
    selector.recursive = recursive;
    selector.allow_not_found = true;
    return check(filesystem_->GetFileInfo(selector));
  }

  std::shared_ptr<fs::FileSystem> filesystem_;  // shared with its creator
};

#ifdef ARROW_S3
// Arrow's S3 has its own threads, which must end before the process does.
void end_s3() {
  if (!fs::IsS3Initialized()) return;
  const auto ended = fs::FinalizeS3();
  if (!ended.ok()) std::fprintf(stderr, "trireme: %s\n", ended.ToString().c_str());
}
#endif

std::shared_ptr<FileSystem> open(const std::string& uri) {
  std::string ignored;
  return data::wrap(open_uri(uri, ignored));
}

}  // namespace

std::shared_ptr<fs::FileSystem> open_uri(const std::string& uri, std::string& path) {
  auto opened = check(fs::FileSystemFromUri(uri, &path));
#ifdef ARROW_S3
  // After it has started: exit handlers run in reverse order.
  static const int ended_at_exit = std::atexit(end_s3);
  if (ended_at_exit != 0) throw std::runtime_error("cannot register another exit handler");
#endif
  return opened;
}

}  // namespace trireme::dataset

namespace trireme::data {

std::shared_ptr<FileSystem> wrap(std::shared_ptr<::arrow::fs::FileSystem> filesystem) {
  return std::make_shared<dataset::ArrowFileSystem>(std::move(filesystem));
}

void register_filesystems() {
  for (const char* scheme : {"s3", "gs", "gcs", "abfs", "abfss", "hdfs"}) register_filesystem(scheme, dataset::open);
}

}  // namespace trireme::data
