#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/tf_example.h"
#include "trireme/export.h"

// TFRecord files: records with their length, and checksums of both. Errors name the file and the record.

namespace trireme::formats {

// Splits the bytes of a file, which arrive in parts of any size, into records.
class TRIREME_API RecordCutter {
 public:
  explicit RecordCutter(std::string file) : file_(std::move(file)) {}

  void add(std::string_view bytes);
  // Valid until add(). Nothing if more bytes are needed. Verifies checksums.
  base::Result<std::optional<std::string_view>> next();
  // Whether the file may end here.
  base::Result<void> end() const;
  std::int64_t records() const { return records_; }
  const std::string& file() const { return file_; }

 private:
  base::Error wrong() const;

  std::string file_;
  std::string bytes_;
  std::size_t at_ = 0;  // in bytes_
  bool length_checked_ = false;
  std::int64_t records_ = 0;
};

// Infers the columns from the start of a file.
class TRIREME_API TfRecordTypes {
 public:
  explicit TfRecordTypes(std::string file) : records_(std::move(file)) {}

  // False when it has seen enough records.
  base::Result<bool> add(std::string_view bytes);
  // Call it at the end of the file, or after enough records. By name, at least one.
  base::Result<std::vector<FeatureColumn>> columns() const;

 private:
  RecordCutter records_;
  FeatureTypes types_;
  bool enough_ = false;
};

// Record batches of tf.train.Example records, about a thousand each.
class TRIREME_API TfRecordReader {
 public:
  // `known`: the features that may occur, whether they are columns or not. `skip`: number of records to skip.
  TfRecordReader(std::string file, std::vector<FeatureColumn> columns, const std::vector<std::string>& known,
                 std::int64_t skip);

  void add(std::string_view bytes) { records_.add(bytes); }
  // Marks the end of the bytes: next() returns the rest, and then nothing.
  void end() { ended_ = true; }
  // Nothing if more bytes are needed, or at the end.
  base::Result<std::optional<data::OwnedArray>> next();
  data::OwnedSchema schema() const { return columns_.schema(); }

 private:
  RecordCutter records_;
  ExampleColumns columns_;
  std::int64_t skip_;
  std::size_t size_ = 0;  // of the records in columns_
  bool ended_ = false;
};

}  // namespace trireme::formats
