#include <arrow/c/bridge.h>
#include <arrow/csv/options.h>
#include <arrow/csv/writer.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/filesystem/localfs.h>
#include <arrow/ipc/writer.h>
#include <arrow/record_batch.h>
#include <parquet/arrow/writer.h>

#include <cstdio>
#include <filesystem>
#include <functional>

#include "open_uri.h"
#include "status.h"
#include "trireme/arrow/data.h"

namespace trireme::data {
namespace {

using arrow::check;
using Output = std::shared_ptr<::arrow::io::OutputStream>;
using BatchPointer = std::shared_ptr<::arrow::RecordBatch>;

constexpr std::int64_t kFileRows = 1'000'000;

// Writes one file: a batch each time, and nullptr for its end.
using Write = std::function<void(const BatchPointer&)>;
using Open = std::function<Write(const std::shared_ptr<::arrow::Schema>&, const Output&)>;

void write(const Dataset& dataset, const std::string& folder, const std::string& ending, const Open& open) {
  ArrowArrayStream stream;
  dataset.export_to(&stream);
  auto reader = check(::arrow::ImportRecordBatchReader(&stream));
  std::string path = folder;
  std::shared_ptr<::arrow::fs::FileSystem> filesystem;
  if (folder.find("://") == std::string::npos) {
    path = std::filesystem::absolute(folder);
    filesystem = std::make_shared<::arrow::fs::LocalFileSystem>();
  } else {
    filesystem = arrow::open_uri(folder, path);
  }
  check(filesystem->CreateDir(path, true));
  BatchPointer batch = check(reader->Next());
  for (int part = 0; batch; ++part) {
    char name[32];
    std::snprintf(name, sizeof name, "/part-%06d.", part);
    auto file = check(filesystem->OpenOutputStream(path + name + ending));
    auto writes = open(reader->schema(), file);
    for (std::int64_t rows = 0; batch && rows < kFileRows; batch = check(reader->Next())) {
      rows += batch->num_rows();
      writes(batch);
    }
    writes(nullptr);
    check(file->Close());
  }
}

}  // namespace

void write_parquet(const Dataset& dataset, const std::string& folder) {
  write(dataset, folder, "parquet", [](const auto& schema, const Output& file) -> Write {
    // With Arrow's types, or lists of a fixed size would come back as lists.
    const auto types = ::parquet::ArrowWriterProperties::Builder().store_schema()->build();
    std::shared_ptr<::parquet::arrow::FileWriter> writer = check(::parquet::arrow::FileWriter::Open(
        *schema, ::arrow::default_memory_pool(), file, ::parquet::default_writer_properties(), types));
    return [writer](const BatchPointer& batch) { check(batch ? writer->WriteRecordBatch(*batch) : writer->Close()); };
  });
}

void write_csv(const Dataset& dataset, const std::string& folder) {
  write(dataset, folder, "csv", [](const auto& schema, const Output& file) -> Write {
    auto writer = check(::arrow::csv::MakeCSVWriter(file, schema, ::arrow::csv::WriteOptions::Defaults()));
    return [writer](const BatchPointer& batch) { check(batch ? writer->WriteRecordBatch(*batch) : writer->Close()); };
  });
}

}  // namespace trireme::data
