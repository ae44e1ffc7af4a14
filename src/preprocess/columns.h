#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "data/array_values.h"
#include "preprocess/table.h"
#include "trireme/tensor.h"
#include "trireme/value.h"

// Reading columns, and creating new ones.

namespace trireme::preprocess {

using data::any_null;
using data::Inside;
using data::is_bytes;
using data::is_floating;
using data::is_list;
using data::is_number;
using data::is_text;
using data::is_whole;
using data::list_at;
using data::null_at;
using data::text_at;
using data::whole_at;

// NaN counts as missing.
bool missing_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index);
bool has_missing(const Column& column);
// Of decimals, too.
double number_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index);

// The error names the column that is not numeric.
base::Result<const Column*> numeric(const Table& table, const std::string& name, std::string_view who);
// The numbers of a column; NaN for null.
std::vector<double> floats_of(const Column& column);
base::Result<const Column*> without_nulls(const Table& table, const std::string& name, std::string_view who);
base::Error nulls_in(const std::string& name, std::string_view who);

// A column of float64: null where the column `like` is null.
Column from_doubles(std::string name, std::shared_ptr<const double[]> values, const Column& like);
// A column computed from the column `like`: null where that is null. float32 stays float32.
Column from_floats(std::string name, std::vector<double> values, const Column& like);
// Negative: null.
Column from_numbers(std::string name, std::vector<std::int64_t> values);
// Lists of the items: row i has those from offsets[i] to offsets[i + 1]. `like` gives the nulls, if there are any.
base::Result<Column> from_lists(std::string name, const std::vector<std::int64_t>& offsets, Column items,
                                const Column* like = nullptr);
// Shape [rows, width]: a column of Arrow's fixed_shape_tensor.
Column from_tensor(std::string name, const Tensor& tensor);
// Null for missing values. The error names the value that does not fit the type.
base::Result<Column> from_values(std::string name, const ArrowSchema& type, const std::vector<const Value*>& values);
// A dictionary of these values in that type; negative codes are null.
base::Result<Column> from_codes(std::string name, const std::vector<std::int64_t>& codes, const ArrowSchema& type,
                                const std::vector<Value>& values);
// The type in which values like these are stored; the error names values without a type. Null for no values.
base::Result<OwnedSchema> schema_for(const std::vector<Value>& values);
// The column, with the only value of `filling` in place of missing values.
base::Result<Column> filled(std::string name, const Column& column, const Column& filling);

}  // namespace trireme::preprocess
