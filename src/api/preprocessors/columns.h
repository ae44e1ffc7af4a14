#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/preprocessors/table.h"
#include "base/result.h"
#include "trireme/value.h"

// Reading columns, and creating new ones.

namespace trireme::api::preprocessing {

// By Arrow format. Booleans are numbers, too.
bool is_number(std::string_view format);
bool is_whole(std::string_view format);
bool is_floating(std::string_view format);
bool is_text(std::string_view format);
bool is_bytes(std::string_view format);
bool is_list(std::string_view format);

bool null_at(const ArrowArray& array, std::int64_t index);
// NaN counts as missing.
bool missing_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index);
bool has_missing(const Column& column);
double number_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index);
std::int64_t whole_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index);
// For text and bytes.
std::string_view text_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index);

// The elements of a list: values from first on.
struct Inside {
  const ArrowSchema* type = nullptr;
  const ArrowArray* values = nullptr;
  std::int64_t first = 0;
  std::int64_t count = 0;
};
Inside list_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index);

// The error names the column that is not numeric.
base::Result<const Column*> numeric(const Table& table, const std::string& name, std::string_view who);
// The numbers of a column; NaN for null.
std::vector<double> floats_of(const Column& column);
base::Result<const Column*> without_nulls(const Table& table, const std::string& name, std::string_view who);
base::Error nulls_in(const std::string& name, std::string_view who);

// A column computed from the column `like`: null where that is null. float32 stays float32.
Column from_floats(std::string name, const std::vector<double>& values, const Column& like);
// Negative: null.
Column from_numbers(std::string name, const std::vector<std::int64_t>& values);
// Shape [rows, ...].
base::Result<Column> from_tensor(std::string name, Tensor tensor);
// Null for missing values. The error names the value that does not fit the type.
base::Result<Column> from_values(std::string name, const ArrowSchema& type, const std::vector<const Value*>& values);
// The type in which values like this one are stored; the error names values without a type.
base::Result<OwnedSchema> schema_for(const Value& value);
// The column, with the only value of `filling` in place of missing values.
base::Result<Column> filled(std::string name, const Column& column, const Column& filling);

}  // namespace trireme::api::preprocessing
