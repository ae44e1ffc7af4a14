#include <arrow/buffer.h>
#include <arrow/c/bridge.h>
#include <arrow/io/interfaces.h>

#include <algorithm>

#include "file_source.h"
#include "file_streams.h"
#include "formats/tar.h"
#include "plan/value_columns.h"
#include "sample_values.h"
#include "trireme/arrow/data.h"

// read_webdataset(): tar files in which the files of a sample share a name and differ in their suffix.

namespace trireme::data {
namespace {

using ::arrow::fs::FileInfo;
using dataset::BatchPointer;
using dataset::FilePart;
using dataset::SchemaPointer;

// Number of samples of the first file that define the columns.
constexpr std::size_t kInspectedSamples = 64;
constexpr std::size_t kBatchSamples = 64;
constexpr std::size_t kBatchBytes = std::size_t{8} << 20;
constexpr std::int64_t kTarRatio = 4;
constexpr const char* kKey = "__key__";

// The samples of one file, in order.
class Samples {
 public:
  Samples(std::shared_ptr<::arrow::io::InputStream> stream, std::string path, const ReadWebdatasetOptions& options)
      : stream_(std::move(stream)),
        path_(std::move(path)),
        options_(options),
        tar_([this](char* out, std::size_t size) { return read(out, size); }) {}
  Samples(const Samples&) = delete;
  Samples& operator=(const Samples&) = delete;

  // Nothing at the end.
  ::arrow::Result<std::optional<Dict>> next() {
    Dict sample;
    while (true) {
      if (!member_) ARROW_RETURN_NOT_OK(next_member());
      if (!member_) break;
      if (sample.empty()) sample[kKey] = member_->key;
      if (sample.at(kKey).as_string() != member_->key) break;
      if (sample.contains(member_->suffix)) {
        return ::arrow::Status::Invalid(path_, ": sample '", member_->key, "' has two files with the suffix .",
                                        member_->suffix);
      }
      auto value =
          dataset::sample_value(member_->suffix, std::move(member_->content), options_.decode, options_.max_pixels);
      if (!value.ok()) {
        return ::arrow::Status::Invalid(path_, ": sample '", member_->key, "', .", member_->suffix, ": ",
                                        value.status().message());
      }
      sample[member_->suffix] = *std::move(value);
      member_.reset();
    }
    if (sample.empty()) return std::optional<Dict>();
    return std::optional(std::move(sample));
  }

 private:
  struct Member {
    std::string key;
    std::string suffix;
    std::string content;
  };

  base::Result<std::size_t> read(char* out, std::size_t size) {
    std::size_t done = 0;
    while (done < size) {
      const auto count = stream_->Read(static_cast<std::int64_t>(size - done), out + done);
      if (!count.ok()) {
        stream_status_ = count.status();
        return base::Error(count.status().message());
      }
      if (*count == 0) break;
      done += static_cast<std::size_t>(*count);
    }
    return done;
  }

  // The error of the stream, or else that the file is invalid.
  ::arrow::Status told(const base::Error& error) const {
    if (stream_status_.IsIOError()) return stream_status_.WithMessage(path_, ": ", stream_status_.message());
    return ::arrow::Status::Invalid(path_, " is not a readable tar file: ", error.message());
  }

  bool is_wanted(const std::string& suffix) const {
    const auto& wanted = options_.suffixes;
    return wanted.empty() || std::find(wanted.begin(), wanted.end(), suffix) != wanted.end();
  }

  // The key ends at the first dot of the file's name.
  ::arrow::Status next_member() {
    while (true) {
      auto found = tar_.next();
      if (!found) return told(found.error());
      if (!*found) return ::arrow::Status::OK();
      const auto& name = (*found)->name;
      const std::size_t begin = name.rfind('/') + 1;
      const std::size_t dot = name.find('.', begin);
      if (!(*found)->file || dot == std::string::npos || dot == begin || dot + 1 == name.size()) continue;
      std::string suffix = name.substr(dot + 1);
      if (!is_wanted(suffix)) continue;
      auto content = tar_.content();
      if (!content) return told(content.error());
      member_ = Member{name.substr(0, dot), std::move(suffix), *std::move(content)};
      return ::arrow::Status::OK();
    }
  }

  std::shared_ptr<::arrow::io::InputStream> stream_;  // shared for its deleter
  std::string path_;
  ReadWebdatasetOptions options_;
  ::arrow::Status stream_status_;
  formats::TarReader tar_;
  std::optional<Member> member_;  // read, but not yet in a sample
};

std::size_t size_of(const Dict& sample) {
  std::size_t size = 0;
  for (const auto& [name, value] : sample) {
    if (const auto* tensor = value.get_if<Tensor>()) size += tensor->num_bytes();
    if (const auto* bytes = value.get_if<Bytes>()) size += bytes->data.size();
    if (const auto* text = value.get_if<std::string>()) size += text->size();
    size += sizeof(Value);
  }
  return size;
}

::arrow::Status check_columns(const std::vector<Dict>& samples, const plan::Columns& columns, const std::string& path) {
  ARROW_ASSIGN_OR_RAISE(const auto found, dataset::as_arrow(plan::columns_of(samples, columns)));
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& [name, type] = found[i];
    if (i < columns.size() && columns[i].second == type) continue;
    if (i < columns.size()) {
      return ::arrow::Status::Invalid(path, ": column '", name, "' is ", columns[i].second.text(),
                                      " in the first samples, and needs ", type.text(), " here");
    }
    std::string known;
    for (const auto& [column, ignored] : columns) {
      if (column != kKey) known += (known.empty() ? "" : ", ") + column;
    }
    const auto sample =
        std::find_if(samples.begin(), samples.end(), [&](const Dict& each) { return each.contains(name); });
    return ::arrow::Status::Invalid(path, ": sample '", sample->at(kKey).as_string(), "' has a .", name,
                                    ", but the first samples have only ", known,
                                    "; read_webdataset's suffixes select which to read");
  }
  return ::arrow::Status::OK();
}

class WebdatasetSource final : public dataset::FileSource {
 public:
  WebdatasetSource(std::vector<std::string> paths, dataset::FileSourceOptions files, ReadWebdatasetOptions options)
      : FileSource("read_webdataset", std::move(paths), std::move(files)), options_(std::move(options)) {}

 private:
  ::arrow::Result<std::shared_ptr<Samples>> samples_of(const FileInfo& file) const {
    ARROW_ASSIGN_OR_RAISE(auto stream, dataset::open_stream(*filesystem(), file));
    return std::make_shared<Samples>(std::move(stream), file.path(), options_);
  }

  ::arrow::Result<SchemaPointer> infer(const FileInfo& file) override {
    ARROW_ASSIGN_OR_RAISE(const auto stream, samples_of(file));
    std::vector<Dict> samples;
    while (samples.size() < kInspectedSamples) {
      ARROW_ASSIGN_OR_RAISE(auto sample, stream->next());
      if (!sample) break;
      samples.push_back(*std::move(sample));
    }
    if (samples.empty()) {
      return ::arrow::Status::Invalid(file.path(), " has no samples: the first file defines the columns");
    }
    auto columns = plan::columns_of(samples);
    if (!columns) return ::arrow::Status::Invalid(file.path(), ": ", columns.error().message());
    columns_ = *std::move(columns);
    ARROW_ASSIGN_OR_RAISE(auto none, dataset::as_arrow(plan::record_of_rows({}, columns_)));
    return ::arrow::ImportSchema(&*none.schema);
  }

  ::arrow::Result<std::vector<FilePart>> plan(const std::vector<FileInfo>& files) override {
    std::vector<FilePart> parts;
    for (const auto& file : files) {
      const bool packed = !file.path().ends_with(".tar");
      parts.push_back({{file}, "", std::nullopt, file.size() * (packed ? kTarRatio : 1)});
    }
    return parts;
  }

  ::arrow::Result<std::shared_ptr<::arrow::RecordBatchReader>> read(const FilePart& part, std::int64_t row) override {
    const FileInfo& file = part.files.front();
    ARROW_ASSIGN_OR_RAISE(const auto stream, samples_of(file));
    auto make = [stream, columns = columns_, schema = body(), path = file.path(),
                 skip = row]() mutable -> ::arrow::Result<BatchPointer> {
      std::vector<Dict> samples;
      for (std::size_t bytes = 0; samples.size() < kBatchSamples && bytes < kBatchBytes;) {
        ARROW_ASSIGN_OR_RAISE(auto sample, stream->next());
        if (!sample) break;
        if (skip > 0) {
          --skip;
          continue;
        }
        bytes += size_of(*sample);
        samples.push_back(*std::move(sample));
      }
      if (samples.empty()) return nullptr;
      ARROW_RETURN_NOT_OK(check_columns(samples, columns, path));
      ARROW_ASSIGN_OR_RAISE(auto record, dataset::as_arrow(plan::record_of_rows(samples, columns)));
      return ::arrow::ImportRecordBatch(&*record.array, schema);
    };
    return std::make_shared<dataset::MadeBatches>(body(), std::move(make));
  }

  ReadWebdatasetOptions options_;
  plan::Columns columns_;
};

}  // namespace

Dataset read_webdataset(const Paths& paths, const ReadWebdatasetOptions& options) {
  ReadWebdatasetOptions wanted = options;
  for (auto& suffix : wanted.suffixes) suffix.erase(0, std::min(suffix.find_first_not_of('.'), suffix.size()));
  return from_source(std::make_shared<WebdatasetSource>(
      paths.paths, dataset::FileSourceOptions{{".tar", ".tgz"}, options.include_paths, options.skip_bad_files},
      std::move(wanted)));
}

}  // namespace trireme::data
