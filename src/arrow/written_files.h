#pragma once

#include <arrow/io/interfaces.h>
#include <arrow/record_batch.h>

#include <functional>
#include <memory>
#include <string>

#include "trireme/arrow/data.h"

namespace trireme::arrow {

using Output = std::shared_ptr<::arrow::io::OutputStream>;

// What is in one file.
class FileWriter {
 public:
  virtual ~FileWriter() = default;
  virtual void add(const ::arrow::RecordBatch& batch) = 0;
  // Writes what is still held.
  virtual void close() {}
};
using MakeWriter = std::function<std::unique_ptr<FileWriter>(const std::shared_ptr<::arrow::Schema>&, const Output&)>;

// The dataset's rows as files in a folder, in the order of their names, which they get when they are complete.
void write_files(const Dataset& dataset, const std::string& folder, const std::string& ending,
                 const data::WriteFilesOptions& options, const MakeWriter& make);

}  // namespace trireme::arrow
