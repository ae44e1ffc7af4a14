#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>

#include <algorithm>

#include "file_source.h"
#include "file_streams.h"
#include "formats/tar.h"
#include "sample_values.h"
#include "trireme/arrow/data.h"
#include "value_columns.h"

// read_webdataset(): tar files in which the files of a sample share a name and differ in their suffix.

namespace trireme::data {
namespace {

using arrow::BatchPointer;
using arrow::FilePart;
using arrow::SchemaPointer;
using ::arrow::fs::FileInfo;

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
          arrow::sample_value(member_->suffix, std::move(member_->content), options_.decode, options_.max_pixels);
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

arrow::ValuePointers column_of(const std::vector<Dict>& samples, const std::string& name) {
  arrow::ValuePointers values;
  for (const auto& sample : samples) values.push_back(sample.find(name));
  return values;
}

::arrow::Result<BatchPointer> batch_of(const std::vector<Dict>& samples, const SchemaPointer& schema,
                                       const std::string& path) {
  for (const auto& sample : samples) {
    for (const auto& [name, value] : sample) {
      if (schema->GetFieldByName(name)) continue;
      std::string known;
      for (const auto& field : schema->fields()) {
        if (field->name() != kKey) known += (known.empty() ? "" : ", ") + field->name();
      }
      return ::arrow::Status::Invalid(path, ": sample '", sample.at(kKey).as_string(), "' has a .", name,
                                      ", but the first samples have only ", known,
                                      "; read_webdataset's suffixes select which to read");
    }
  }
  std::vector<std::shared_ptr<::arrow::Array>> columns;
  for (const auto& field : schema->fields()) {
    auto column = arrow::build_column(*field, column_of(samples, field->name()));
    if (!column.ok()) {
      return ::arrow::Status::Invalid(path, ": column '", field->name(), "': ", column.status().message());
    }
    columns.push_back(*std::move(column));
  }
  return ::arrow::RecordBatch::Make(schema, static_cast<std::int64_t>(samples.size()), std::move(columns));
}

class WebdatasetSource final : public arrow::FileSource {
 public:
  WebdatasetSource(std::vector<std::string> paths, arrow::FileSourceOptions files, ReadWebdatasetOptions options)
      : FileSource("read_webdataset", std::move(paths), std::move(files)), options_(std::move(options)) {}

 private:
  ::arrow::Result<std::shared_ptr<Samples>> samples_of(const FileInfo& file) const {
    ARROW_ASSIGN_OR_RAISE(auto stream, arrow::open_stream(*filesystem(), file));
    return std::make_shared<Samples>(std::move(stream), file.path(), options_);
  }

  ::arrow::Result<SchemaPointer> infer(const FileInfo& file) override {
    ARROW_ASSIGN_OR_RAISE(const auto stream, samples_of(file));
    std::vector<Dict> samples;
    std::vector<std::string> names;
    while (samples.size() < kInspectedSamples) {
      ARROW_ASSIGN_OR_RAISE(auto sample, stream->next());
      if (!sample) break;
      for (const auto& [name, value] : *sample) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
      samples.push_back(*std::move(sample));
    }
    if (samples.empty()) {
      return ::arrow::Status::Invalid(file.path(), " has no samples: the first file defines the columns");
    }
    ::arrow::FieldVector fields;
    for (const auto& name : names) {
      auto field = arrow::infer_column(name, column_of(samples, name));
      if (!field.ok()) {
        return ::arrow::Status::Invalid(file.path(), ": column '", name, "': ", field.status().message());
      }
      fields.push_back(*std::move(field));
    }
    return ::arrow::schema(std::move(fields));
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
    auto make = [stream, schema = body(), path = file.path(), skip = row]() mutable -> ::arrow::Result<BatchPointer> {
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
      return batch_of(samples, schema, path);
    };
    return std::make_shared<arrow::MadeBatches>(body(), std::move(make));
  }

  ReadWebdatasetOptions options_;
};

}  // namespace

Dataset read_webdataset(const Paths& paths, const ReadWebdatasetOptions& options) {
  ReadWebdatasetOptions wanted = options;
  for (auto& suffix : wanted.suffixes) suffix.erase(0, std::min(suffix.find_first_not_of('.'), suffix.size()));
  return from_source(std::make_shared<WebdatasetSource>(
      paths.paths, arrow::FileSourceOptions{{".tar", ".tgz"}, options.include_paths, options.skip_bad_files},
      std::move(wanted)));
}

}  // namespace trireme::data
