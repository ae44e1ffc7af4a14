#include "written_files.h"

#include <arrow/array/data.h>
#include <arrow/buffer.h>
#include <arrow/c/bridge.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/filesystem/localfs.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <random>
#include <stdexcept>

#include "open_uri.h"
#include "plan/plan.h"
#include "status.h"

namespace trireme::dataset {
namespace {

// Size in memory at which a file is closed; min_rows_per_file is the same limit in rows.
constexpr std::int64_t kFileBytes = std::int64_t{512} << 20;

using BatchPointer = std::shared_ptr<::arrow::RecordBatch>;

std::int64_t bytes_of(const ::arrow::ArrayData& array) {
  std::int64_t bytes = 0;
  for (const auto& buffer : array.buffers) bytes += buffer ? buffer->size() : 0;
  for (const auto& child : array.child_data) bytes += bytes_of(*child);
  return bytes;
}

std::int64_t bytes_of(const ::arrow::RecordBatch& batch) {
  std::int64_t bytes = 0;
  for (const auto& column : batch.column_data()) bytes += bytes_of(*column);
  return bytes;
}

class Folder {
 public:
  Folder(const std::string& folder, std::string ending) : shown_(folder), ending_(std::move(ending)) {
    local_ = folder.find("://") == std::string::npos;
    if (local_) {
      path_ = std::filesystem::absolute(folder).lexically_normal();
      files_ = std::make_shared<::arrow::fs::LocalFileSystem>();
    } else {
      files_ = open_uri(folder, path_);
    }
    while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
    std::random_device device;
    std::array<char, 16> prefix;
    std::snprintf(prefix.data(), prefix.size(), "%08x", device());
    prefix_ = prefix.data();
  }

  // Whether there is anything to write.
  bool prepare(const std::string& mode) {
    const std::array<std::string, 4> modes{"append", "overwrite", "ignore", "error"};
    if (std::find(modes.begin(), modes.end(), mode) == modes.end()) {
      throw ValueError("mode = '" + mode + "': expected one of 'append', 'overwrite', 'ignore', 'error'");
    }
    ::arrow::fs::FileSelector below;
    below.base_dir = path_;
    below.recursive = true;
    below.allow_not_found = true;
    std::vector<std::string> there;
    for (const auto& info : check(files_->GetFileInfo(below))) {
      if (info.IsFile()) there.push_back(info.path());
    }
    if (!there.empty() && mode == "error") {
      throw std::runtime_error(shown_ + " has " + std::to_string(there.size()) +
                               " files; mode 'overwrite' replaces them, 'append' adds to them");
    }
    if (!there.empty() && mode == "ignore") return false;
    if (mode == "overwrite") replaced_ = std::move(there);
    check(files_->CreateDir(path_, true));
    return true;
  }

  Output create(int index) {
    std::array<char, 16> number;
    std::snprintf(number.data(), number.size(), "-%06d", index);
    const std::string name = prefix_ + number.data() + ending_;
    final_ = path_ + "/" + name;
    // An object store shows a file only when it is complete, and cannot rename it.
    written_ = local_ ? path_ + "/." + name : final_;
    return check(files_->OpenOutputStream(written_));
  }

  void done() {
    if (written_ != final_) check(files_->Move(written_, final_));
    done_.push_back(final_);
  }

  void discard() const { (void)files_->DeleteFile(written_); }

  // Removes what an attempt has written.
  void discard_all() {
    for (const auto& path : done_) check(files_->DeleteFile(path));
    done_.clear();
  }

  // Last: the dataset may read these files.
  void remove_replaced() const {
    for (const auto& path : replaced_) check(files_->DeleteFile(path));
  }

 private:
  std::string shown_;
  std::string ending_;
  bool local_ = true;
  std::string path_;
  std::shared_ptr<::arrow::fs::FileSystem> files_;
  std::string prefix_;
  std::string final_;
  std::string written_;
  std::vector<std::string> done_;
  std::vector<std::string> replaced_;
};

// Writes up to the rows or bytes of one file; `batch` is then the first one of the next file.
void fill(FileWriter& writer, ::arrow::RecordBatchReader& reader, BatchPointer& batch,
          const std::optional<std::int64_t>& min_rows) {
  std::int64_t rows = 0;
  std::int64_t bytes = 0;
  while (batch && (min_rows ? rows < *min_rows : bytes < kFileBytes)) {
    // Batches may be much larger than the size of a file.
    const std::int64_t count = min_rows ? std::min(*min_rows - rows, batch->num_rows()) : batch->num_rows();
    rows += count;
    bytes += bytes_of(*batch);
    writer.add(*batch->Slice(0, count));
    batch = count < batch->num_rows() ? batch->Slice(count) : check(reader.Next());
  }
  writer.close();
}

void write_rows(const Dataset& dataset, Folder& files, const std::optional<std::int64_t>& min_rows,
                const MakeWriter& make) {
  ArrowArrayStream stream;
  dataset.export_to(&stream);
  const auto reader = check(::arrow::ImportRecordBatchReader(&stream));
  BatchPointer batch = check(reader->Next());
  int part = 0;
  do {  // write one file even without rows: it has the columns
    const auto file = files.create(part++);
    try {
      const auto writer = make(reader->schema(), file);
      fill(*writer, *reader, batch, min_rows);
      check(file->Close());
      files.done();
    } catch (...) {
      (void)file->Abort();
      files.discard();
      throw;
    }
  } while (batch);
}

}  // namespace

void write_files(const Dataset& dataset, const std::string& folder, const std::string& ending,
                 const data::WriteFilesOptions& options, const MakeWriter& make) {
  if (options.min_rows_per_file && *options.min_rows_per_file < 1) {
    throw ValueError("min_rows_per_file=" + std::to_string(*options.min_rows_per_file) +
                     ": expected a number of rows, 1 or more");
  }
  Folder files(folder, ending);
  if (!files.prepare(options.mode)) return;
  plan::with_widest_types(*dataset.plan(), [&] {
    files.discard_all();  // with narrower types
    write_rows(dataset, files, options.min_rows_per_file, make);
    return true;
  });
  files.remove_replaced();
}

}  // namespace trireme::dataset
