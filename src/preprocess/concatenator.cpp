#include <algorithm>
#include <cmath>
#include <limits>

#include "data/type_format.h"
#include "preprocess/arguments.h"
#include "preprocess/columns.h"
#include "preprocess/number_types.h"
#include "preprocess/preprocessor_impl.h"
#include "preprocess/python_text.h"
#include "preprocess/state_json.h"

// Combines columns into one tensor.

namespace trireme::preprocess {
namespace {

// The numbers of a column, nested in lists or not.
struct Numbers {
  const ArrowSchema* type = nullptr;
  const ArrowArray* values = nullptr;
  std::int64_t first = 0;  // of row 0
  std::int64_t width = 1;  // of a row
};

struct Options {
  std::vector<std::string> columns;
  std::string output;
  std::optional<DType> dtype;
  bool flatten = false;
};

// Flattens nested lists of fixed size; the type is not a number type if they are not tensors.
base::Result<Numbers> numbers_in(const Column& column) {
  Numbers numbers{&*column.schema, &*column.array, 0, 1};
  while (std::string_view(numbers.type->format).starts_with("+w:")) {
    const std::int64_t length = std::atoll(numbers.type->format + 3);
    numbers.first = (numbers.first + numbers.values->offset) * length;
    if (__builtin_mul_overflow(numbers.width, length, &numbers.width)) return base::error("too many values in a row");
    numbers.type = numbers.type->children[0];
    numbers.values = numbers.values->children[0];
  }
  return numbers;
}

class Concatenator final : public PreprocessorImpl {
 public:
  explicit Concatenator(Options options) : options_(std::move(options)) {}
  bool fittable() const override { return false; }
  std::vector<std::string> inputs() const override { return options_.columns; }
  std::vector<std::string> outputs() const override { return {options_.output}; }

  base::Result<Changes> change(const Table& table) const override {
    std::vector<const Column*> found;
    std::vector<Numbers> parts;
    std::int64_t width = 0;
    for (const auto& each : options_.columns) {
      TRIREME_ASSIGN(const Column* column, table.find(each, name()));
      TRIREME_ASSIGN(const auto numbers, checked(*column));
      found.push_back(column);
      parts.push_back(numbers);
      width += numbers.width;
    }
    // By type, not by the content of a batch: a null must not change the type.
    DType dtype = options_.dtype.value_or(number_type(parts.front().type->format));
    for (const auto& part : parts) {
      if (!options_.dtype) dtype = common_type(dtype, number_type(part.type->format));
    }
    Tensor together(dtype, {table.rows(), width});
    std::int64_t at = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      TRIREME_TRY(expect_no_nulls(*found[i], parts[i], dtype));
      with_number_type(dtype, [&](auto out) { lay<decltype(out)>(parts[i], together, width, at); });
      at += parts[i].width;
    }
    Changes changes;
    changes.columns.push_back(from_tensor(options_.output, together));
    changes.dropped = options_.columns;
    return changes;
  }

 private:
  base::Result<Numbers> checked(const Column& column) const {
    TRIREME_ASSIGN(const auto numbers, numbers_in(column), "Concatenator: column '{}'", column.name);
    if (!is_number(numbers.type->format)) {
      return base::error(
          "Concatenator: column '{}' is {}, expected numbers (or vectors of one length): remove it from the "
          "columns, or convert it to numbers first (OrdinalEncoder, OneHotEncoder, map_batches)",
          column.name, column.type());
    }
    if (numbers.type != &*column.schema && !options_.flatten) {
      return base::error("Concatenator: column '{}' holds vectors; set flatten=True to concatenate them", column.name);
    }
    return numbers;
  }

  static base::Result<void> expect_no_nulls(const Column& column, const Numbers& numbers, DType dtype) {
    const bool nulls = any_null(*column.array, 0, column.rows()) ||
                       any_null(*numbers.values, numbers.first, column.rows() * numbers.width);
    const bool floating = dtype == DType::kF16 || dtype == DType::kF32 || dtype == DType::kF64;
    const bool vectors = numbers.type != &*column.schema;
    if (!nulls || (floating && !vectors)) return {};
    return base::error(
        "Concatenator: column '{}' has nulls: fill them first (SimpleImputer), or, if it has numbers, use "
        "dtype='float32', which stores them as NaN",
        column.name);
  }

  template <typename Out>
  static void lay(const Numbers& from, Tensor& to, std::int64_t width, std::int64_t at) {
    auto* out = static_cast<typename Out::Stored*>(to.data());
    const std::int64_t rows = to.shape().front();
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < from.width; ++i)
        out[row * width + at + i] = Out::of(*from.type, *from.values, from.first + row * from.width + i);
    }
  }

  Options options_;
};

}  // namespace

Made make_concatenator(Arguments& given) {
  Options options;
  TRIREME_ASSIGN(options.columns, given.names("columns"));
  TRIREME_ASSIGN(options.output, given.text("output_column_name", "concat_out"));
  TRIREME_ASSIGN(options.dtype, decoded_dtype(given.get("dtype")));
  TRIREME_TRY(given.flag("raise_if_missing", false));  // for compatibility: a missing column is always an error
  TRIREME_ASSIGN(options.flatten, given.flag("flatten", false));
  return make_impl<Concatenator>(std::move(options));
}

}  // namespace trireme::preprocess
