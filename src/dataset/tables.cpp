#include <arrow/c/bridge.h>
#include <arrow/dataset/dataset.h>
#include <arrow/dataset/discovery.h>
#include <arrow/dataset/file_csv.h>
#include <arrow/dataset/file_json.h>
#include <arrow/dataset/file_parquet.h>
#include <arrow/dataset/partition.h>
#include <arrow/dataset/scanner.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <parquet/metadata.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>

#include "conditions.h"
#include "file_source.h"
#include "found_files.h"
#include "kernels.h"
#include "parquet_pages.h"
#include "status.h"
#include "trireme/arrow/data.h"
#include "trireme/data_source.h"
#include "unified.h"

// Tables in files: read_parquet(), read_csv() and read_json().

namespace trireme::data {
namespace {

namespace ds = ::arrow::dataset;
using dataset::check;
using dataset::FoundFiles;

constexpr std::int64_t kBatchRows = 65536;
constexpr std::size_t kListingThreads = 8;
// Row groups up to this size are decoded at once, larger ones page by page.
constexpr std::int64_t kScannedBytes = 8 << 20;

enum class Format { kParquet, kCsv, kJson };

struct LargeGroup {
  std::shared_ptr<::parquet::FileMetaData> file;
  int group = 0;
  std::vector<int> leaves;
};

struct Part {
  std::shared_ptr<ds::FileFragment> file;  // a row group of it, or all
  std::shared_ptr<::arrow::Schema> schema;
};

class FilesSource final : public DataSource {
 public:
  FilesSource(std::string call, Format format, std::vector<std::string> paths, ReadFilesOptions options,
              std::vector<DataCondition> conditions = {})
      : call_(std::move(call)),
        format_(format),
        paths_(std::move(paths)),
        options_(std::move(options)),
        conditions_(std::move(conditions)) {}

  std::string name() const override { return call_ + "(" + dataset::short_list(paths_) + ")"; }

  std::vector<DataFragment> list() override {
    dataset::load_kernels();
    FoundFiles found = dataset::find_files(paths_);
    remote_ = found.remote;
    schema_ = schema_of(found);
    if (format_ == Format::kCsv) find_csv_nulls(found);
    std::vector<DataFragment> listed;
    load_footers();
    if (!options_.strict) unify(found);
    select_output();
    std::vector<std::string> bad;
    for (const auto& file : found.files) {
      if (files_.contains(file.path())) add_file(file, listed);
      else bad.push_back(file.path());
    }
    if (listed.empty()) keep_columns(found, listed);
    if (!bad.empty()) {
      std::fprintf(stderr, "trireme: %s: %zu of %zu files cannot be read and are skipped: %s\n", name().c_str(),
                   bad.size(), found.files.size(), dataset::short_list(bad).c_str());
    }
    return listed;
  }

  std::int64_t open(std::size_t fragment, std::int64_t, ArrowArrayStream* stream) override {
    auto reader = read(fragment);
    if (!reader->schema()->Equals(*output_)) {
      auto make = [reader, schema = output_]() -> ::arrow::Result<dataset::BatchPointer> {
        ARROW_ASSIGN_OR_RAISE(const auto batch, reader->Next());
        if (!batch) return batch;
        return dataset::conformed(*batch, schema);
      };
      reader = std::make_shared<dataset::MadeBatches>(output_, std::move(make));
    }
    check(::arrow::ExportRecordBatchReader(std::move(reader), stream));
    return 0;
  }

  std::shared_ptr<DataSource> with_columns(const std::vector<std::string>& columns) override {
    // A second selection chooses from the first one.
    if (!options_.columns.empty()) return nullptr;
    return std::make_shared<FilesSource>(
        call_, format_, paths_, ReadFilesOptions{columns, options_.skip_bad_files, options_.strict}, conditions_);
  }

  std::shared_ptr<DataSource> with_conditions(const std::vector<DataCondition>& conditions) override {
    if (format_ != Format::kParquet) return nullptr;
    return std::make_shared<FilesSource>(call_, format_, paths_, options_, conditions);
  }

  bool remote() const override { return remote_; }
  std::int64_t decoding_bytes() const override { return decoding_bytes_; }

 private:
  std::shared_ptr<ds::FileFormat> format() const {
    if (format_ == Format::kCsv) {
      auto options = std::make_shared<ds::CsvFragmentScanOptions>();
      options->convert_options.strings_can_be_null = nulls_unquoted_;
      options->convert_options.quoted_strings_can_be_null = !nulls_unquoted_;
      auto csv = std::make_shared<ds::CsvFileFormat>();
      csv->default_fragment_scan_options = std::move(options);
      return csv;
    }
    if (format_ == Format::kJson) return std::make_shared<ds::JsonFileFormat>();
    return std::make_shared<ds::ParquetFileFormat>();
  }

  // The columns that the file has, in its own types.
  std::shared_ptr<::arrow::RecordBatchReader> read(std::size_t fragment) {
    const auto& [file, schema] = parts_[fragment];
    if (const auto large = large_.find(fragment); large != large_.end()) {
      const auto& [metadata, group, leaves] = large->second;
      return dataset::read_pages(file->source(), metadata, group, leaves, {kBatchRows, remote_});
    }
    ds::ScannerBuilder builder(schema, file, std::make_shared<ds::ScanOptions>());
    std::vector<std::string> columns;
    for (const auto& name : output_->field_names()) {
      if (schema->GetFieldIndex(name) >= 0) columns.push_back(name);
    }
    check(builder.Project(columns));
    check(builder.BatchSize(kBatchRows));
    // The pipeline has its own threads and memory limit.
    check(builder.UseThreads(false));
    check(builder.BatchReadahead(1));
    check(builder.FragmentReadahead(1));
    return check(check(builder.Finish())->ToRecordBatchReader());
  }

  // The first file's columns, and those in the names of folders.
  std::shared_ptr<::arrow::Schema> schema_of(const FoundFiles& found) {
    ds::FileSystemFactoryOptions options;
    options.partitioning = ds::HivePartitioning::MakeFactory();
    options.partition_base_dir = found.folder;
    options.exclude_invalid_files = options_.skip_bad_files;
    auto factory = check(ds::FileSystemDatasetFactory::Make(found.filesystem, found.files, format(), options));
    dataset_ = check(factory->Finish());
    auto iterator = check(dataset_->GetFragments());
    while (auto fragment = check(iterator.Next())) {
      auto file = std::dynamic_pointer_cast<ds::FileFragment>(fragment);
      files_.emplace(file->source().path(), std::move(file));
    }
    return dataset_->schema();
  }

  // As write_csv() writes it: null without quotes, text in quotes. Not for files with quoted nulls in numbers.
  void find_csv_nulls(const FoundFiles& found) {
    const auto plain = dataset_;
    const auto files = std::exchange(files_, {});
    nulls_unquoted_ = true;
    if (schema_of(found)->Equals(schema_)) return;
    nulls_unquoted_ = false;
    dataset_ = plain;
    files_ = files;
  }

  // Columns that only other files have are added, and types are widened.
  void unify(const FoundFiles& found) {
    for (const auto& file : found.files) {
      const auto known = files_.find(file.path());
      if (known == files_.end()) continue;
      const auto here = known->second->ReadPhysicalSchema();
      if (!here.ok()) continue;  // reported by add_file()
      for (const auto& field : (*here)->fields()) add_field(file.path(), *field);
    }
  }

  void add_field(const std::string& path, const ::arrow::Field& field) {
    const std::string& first = first_with_.try_emplace(field.name(), path).first->second;
    const int index = schema_->GetFieldIndex(field.name());
    if (index < 0) {
      schema_ = check(schema_->AddField(schema_->num_fields(), field.WithMetadata(nullptr)));
      return;
    }
    const auto before = schema_->field(index);
    if (before->type()->Equals(field.type()) || !is_read(field.name())) return;
    const auto both = dataset::unified(before, field.Copy());
    if (!both) {
      throw std::runtime_error("column '" + field.name() + "' is " + before->type()->ToString() + " in " + first +
                               " and " + field.type()->ToString() + " in " + path + ": convert one of them");
    }
    schema_ = check(schema_->SetField(index, both));
  }

  // The schema to read a file with: its own types, and the columns in the names of folders.
  std::shared_ptr<::arrow::Schema> schema_in(const ::arrow::Schema& file) const {
    std::vector<std::shared_ptr<::arrow::Field>> fields;
    for (const auto& field : schema_->fields()) {
      const auto own = file.GetFieldByName(field->name());
      if (own) fields.push_back(own);
      else if (first_->GetFieldIndex(field->name()) < 0 && dataset_->schema()->GetFieldIndex(field->name()) >= 0)
        fields.push_back(field);
    }
    return ::arrow::schema(std::move(fields));
  }

  // The columns that were asked for.
  void select_output() {
    std::vector<std::shared_ptr<::arrow::Field>> fields;
    for (const auto& column : read_columns()) {
      fields.push_back(schema_->GetFieldByName(column));
      if (fields.back()) continue;
      std::string names;
      for (const auto& name : schema_->field_names()) names += (names.empty() ? "" : ", ") + name;
      throw std::runtime_error("no column named '" + column + "'; the columns are " + names);
    }
    output_ = ::arrow::schema(std::move(fields));
  }

  // Reads the metadata of all files on several threads: remote stores answer slowly. The fragments keep it; the next
  // user of a file reports its errors.
  void load_footers() {
    std::vector<ds::FileFragment*> files;
    for (const auto& [path, file] : files_) files.push_back(file.get());
    std::atomic<std::size_t> next = 0;
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < std::min(kListingThreads, files.size()); ++i) {
      threads.emplace_back([&] {
        for (std::size_t at = next++; at < files.size(); at = next++) (void)files[at]->ReadPhysicalSchema().ok();
      });
    }
  }

  void add_file(const ::arrow::fs::FileInfo& info, std::vector<DataFragment>& listed) {
    const auto file = files_.at(info.path());
    auto here = file->ReadPhysicalSchema();
    if (!here.ok()) throw std::runtime_error(info.path() + " cannot be read: " + here.status().ToString());
    check_columns(info.path(), **here);
    const auto schema = schema_in(**here);
    if (format_ != Format::kParquet) {
      listed.push_back({info.path(), {}, info.size()});
      parts_.push_back({file, schema});
      return;
    }
    auto parquet = std::static_pointer_cast<ds::ParquetFileFragment>(file);
    check(parquet->EnsureCompleteMetadata());
    const auto metadata = parquet->metadata();
    const auto leaves = dataset::leaves_of(*metadata, read_columns());
    for (const int group : groups_of(*parquet, *schema)) {
      const auto about = metadata->RowGroup(group);
      const std::int64_t bytes = bytes_of(*about);
      const bool large = leaves && bytes > kScannedBytes;
      if (large) large_.emplace(parts_.size(), LargeGroup{metadata, group, *leaves});
      // A row group that is decoded at once is in memory as a whole, however little of it is left to read.
      decoding_bytes_ = std::max(decoding_bytes_, large ? dataset::page_bytes(*about, *leaves) : 2 * bytes);
      listed.push_back({info.path() + ", row group " + std::to_string(group), about->num_rows(), bytes});
      auto part = std::static_pointer_cast<ds::FileFragment>(check(parquet->Subset(std::vector<int>{group})));
      parts_.push_back({std::move(part), schema});
    }
  }

  // Keep one row group even if none of its rows match, or a file without any: otherwise there would be no columns.
  void keep_columns(const FoundFiles& found, std::vector<DataFragment>& listed) {
    conditions_.clear();
    for (const auto& file : found.files) {
      if (files_.contains(file.path()) && listed.empty()) add_file(file, listed);
    }
    for (const auto& file : found.files) {
      if (!files_.contains(file.path()) || !listed.empty()) continue;
      const auto fragment = files_.at(file.path());
      listed.push_back({file.path(), 0, 0});
      parts_.push_back({fragment, schema_in(*check(fragment->ReadPhysicalSchema()))});
    }
    if (listed.empty()) return;
    listed.resize(1);
    parts_.resize(1);
  }

  // The row groups that may have rows that meet the conditions.
  std::vector<int> groups_of(ds::ParquetFileFragment& file, const ::arrow::Schema& schema) const {
    const auto expression = dataset::expression_of(conditions_, schema);
    if (!expression) {
      std::vector<int> all(static_cast<std::size_t>(file.metadata()->num_row_groups()));
      std::iota(all.begin(), all.end(), 0);
      return all;
    }
    const auto kept = check(file.Subset(check(expression->Bind(schema))));
    return std::static_pointer_cast<ds::ParquetFileFragment>(kept)->row_groups();
  }

  std::int64_t bytes_of(const ::parquet::RowGroupMetaData& group) const {
    const auto whole = static_cast<std::int64_t>(schema_->num_fields());
    const auto read = options_.columns.empty() ? whole : static_cast<std::int64_t>(options_.columns.size());
    return group.total_byte_size() * read / std::max<std::int64_t>(whole, 1);
  }

  std::vector<std::string> read_columns() const {
    return options_.columns.empty() ? schema_->field_names() : options_.columns;
  }

  bool is_read(const std::string& column) const {
    return options_.columns.empty() ||
           std::find(options_.columns.begin(), options_.columns.end(), column) != options_.columns.end();
  }

  // If strict: other files may have more columns; a missing column, or one of another type, would change the rows.
  void check_columns(const std::string& path, const ::arrow::Schema& here) {
    if (!first_) {
      first_ = std::make_shared<::arrow::Schema>(here.fields());
      first_path_ = path;
      return;
    }
    if (!options_.strict) return;
    for (const auto& field : first_->fields()) {
      if (!is_read(field->name())) continue;
      const auto other = here.GetFieldByName(field->name());
      if (other && other->type()->Equals(field->type())) continue;
      throw std::runtime_error("column '" + field->name() + "' is " + field->type()->ToString() + " in " + first_path_ +
                               " and " + (other ? other->type()->ToString() : "missing") + " in " + path);
    }
  }

  std::string call_;
  Format format_;
  std::vector<std::string> paths_;
  ReadFilesOptions options_;
  std::vector<DataCondition> conditions_;  // of the requested rows
  bool remote_ = false;
  bool nulls_unquoted_ = false;              // in CSV files
  std::shared_ptr<ds::Dataset> dataset_;     // shared with its fragments
  std::shared_ptr<::arrow::Schema> schema_;  // of all files, and of the folders
  std::shared_ptr<::arrow::Schema> first_;   // of the first file
  std::string first_path_;
  std::map<std::string, std::string> first_with_;  // the first file that has a column, by name
  std::map<std::string, std::shared_ptr<ds::FileFragment>> files_;
  std::shared_ptr<::arrow::Schema> output_;  // the columns of the rows
  std::vector<Part> parts_;
  std::map<std::size_t, LargeGroup> large_;  // by fragment
  std::int64_t decoding_bytes_ = 0;
};

Dataset read(const char* call, Format format, const Paths& paths, const ReadFilesOptions& options) {
  return from_source(std::make_shared<FilesSource>(call, format, paths.paths, options));
}

}  // namespace

Dataset read_parquet(const Paths& paths, const ReadFilesOptions& options) {
  return read("read_parquet", Format::kParquet, paths, options);
}

Dataset read_csv(const Paths& paths, const ReadFilesOptions& options) {
  return read("read_csv", Format::kCsv, paths, options);
}

Dataset read_json(const Paths& paths, const ReadFilesOptions& options) {
  return read("read_json", Format::kJson, paths, options);
}

}  // namespace trireme::data
