#pragma once

#include <arrow/io/interfaces.h>
#include <arrow/record_batch.h>

#include <functional>
#include <memory>
#include <string>

#include "trireme/arrow/data.h"

namespace trireme::dataset {

using Output = std::shared_ptr<::arrow::io::OutputStream>;

// The writer of one file.
class FileWriter {
 public:
  virtual ~FileWriter() = default;
  virtual void add(const ::arrow::RecordBatch& batch) = 0;
  // Writes buffered rows.
  virtual void close() {}
};
using MakeWriter = std::function<std::unique_ptr<FileWriter>(const std::shared_ptr<::arrow::Schema>&, const Output&)>;

// Writes the dataset's rows to files in a folder, in the order of their names. Files get their names when they are
// complete.
void write_files(const Dataset& dataset, const std::string& folder, const std::string& ending,
                 const data::WriteFilesOptions& options, const MakeWriter& make);

}  // namespace trireme::dataset
