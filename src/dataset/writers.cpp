#include <arrow/csv/options.h>
#include <arrow/csv/writer.h>
#include <arrow/ipc/writer.h>
#include <arrow/type_traits.h>
#include <parquet/arrow/writer.h>

#include "status.h"
#include "trireme/arrow/data.h"
#include "written_files.h"

namespace trireme::data {
namespace {

using dataset::check;
using dataset::Output;

constexpr std::int64_t kRowGroupRows = 131'072;

class ParquetFile final : public dataset::FileWriter {
 public:
  ParquetFile(const ::arrow::Schema& schema, const Output& file) {
    // Store the Arrow schema: otherwise lists of a fixed size would be read back as lists.
    const auto types = ::parquet::ArrowWriterProperties::Builder().store_schema()->build();
    const auto groups = ::parquet::WriterProperties::Builder().max_row_group_length(kRowGroupRows)->build();
    writer_ = check(::parquet::arrow::FileWriter::Open(schema, ::arrow::default_memory_pool(), file, groups, types));
  }

  void add(const ::arrow::RecordBatch& batch) override { check(writer_->WriteRecordBatch(batch)); }
  void close() override { check(writer_->Close()); }

 private:
  std::shared_ptr<::parquet::arrow::FileWriter> writer_;
};

class CsvFile final : public dataset::FileWriter {
 public:
  CsvFile(const std::shared_ptr<::arrow::Schema>& schema, const Output& file) {
    for (const auto& field : schema->fields()) {
      const auto id = field->type()->id();
      if (!::arrow::is_nested(id) && id != ::arrow::Type::EXTENSION) continue;
      throw ValueError("write_csv: column '" + field->name() + "' is " + field->type()->ToString() +
                       ", which CSV cannot hold; drop it, or use write_parquet");
    }
    auto options = ::arrow::csv::WriteOptions::Defaults();
    // A null in the only column would be an empty line, which readers skip.
    if (schema->num_fields() == 1) options.null_string = "NULL";
    writer_ = check(::arrow::csv::MakeCSVWriter(file, schema, options));
  }

  void add(const ::arrow::RecordBatch& batch) override { check(writer_->WriteRecordBatch(batch)); }
  void close() override { check(writer_->Close()); }

 private:
  std::shared_ptr<::arrow::ipc::RecordBatchWriter> writer_;
};

}  // namespace

void write_parquet(const Dataset& dataset, const std::string& folder, const WriteFilesOptions& options) {
  dataset::write_files(dataset, folder, ".parquet", options, [](const auto& schema, const Output& file) {
    return std::make_unique<ParquetFile>(*schema, file);
  });
}

void write_csv(const Dataset& dataset, const std::string& folder, const WriteFilesOptions& options) {
  dataset::write_files(dataset, folder, ".csv", options,
                       [](const auto& schema, const Output& file) { return std::make_unique<CsvFile>(schema, file); });
}

}  // namespace trireme::data
