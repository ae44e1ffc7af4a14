#include <arrow/array.h>
#include <arrow/array/concatenate.h>
#include <arrow/compute/api_scalar.h>
#include <arrow/compute/cast.h>
#include <arrow/extension/fixed_shape_tensor.h>
#include <arrow/extension_type.h>
#include <arrow/type_traits.h>

#include <algorithm>
#include <limits>

#include "kernels.h"
#include "status.h"
#include "trireme/arrow/data.h"
#include "written_files.h"

// write_numpy(): one column as .npy files.

namespace trireme::data {
namespace {

using dataset::check;
using dataset::Output;
using ArrayPointer = std::shared_ptr<::arrow::Array>;

// A column's values, contiguous, and their shape.
struct Values {
  ArrayPointer flat;
  std::vector<std::int64_t> shape;
};

class NpyFile final : public dataset::FileWriter {
 public:
  NpyFile(std::string column, const ::arrow::Schema& schema, Output file)
      : column_(std::move(column)), type_(schema.GetFieldByName(column_)->type()), file_(std::move(file)) {
    const auto name = descr(*innermost(type_));
    if (name.empty()) throw unfit();
  }

  void add(const ::arrow::RecordBatch& batch) override { parts_.push_back(batch.GetColumnByName(column_)); }

  void close() override {
    if (parts_.empty()) parts_.push_back(check(::arrow::MakeEmptyArray(type_)));
    const auto whole = check(::arrow::Concatenate(parts_));
    const Values values = in_shape(whole);
    check(file_->Write(header(descr(*values.flat->type()), values.shape)));
    const auto& data = *values.flat->data();
    if (values.flat->length() == 0) return;
    if (values.flat->type_id() == ::arrow::Type::BOOL) {
      std::string bytes;
      const auto& bits = static_cast<const ::arrow::BooleanArray&>(*values.flat);
      for (std::int64_t i = 0; i < bits.length(); ++i) bytes.push_back(bits.Value(i) ? 1 : 0);
      check(file_->Write(bytes));
      return;
    }
    const auto width = values.flat->type()->byte_width();
    check(file_->Write(data.buffers[1]->data() + data.offset * width, data.length * width));
  }

 private:
  ValueError unfit() const {
    return ValueError("write_numpy: column '" + column_ + "' is " + type_->ToString() +
                      "; .npy files hold numbers of one shape");
  }

  static std::shared_ptr<::arrow::DataType> innermost(std::shared_ptr<::arrow::DataType> type) {
    while (true) {
      if (type->id() == ::arrow::Type::EXTENSION) {
        type = static_cast<const ::arrow::ExtensionType&>(*type).storage_type();
      } else if (type->id() == ::arrow::Type::FIXED_SIZE_LIST || ::arrow::is_list_like(type->id())) {
        type = static_cast<const ::arrow::BaseListType&>(*type).value_type();
      } else {
        return type;
      }
    }
  }

  // For example "<i8"; nothing for types that NumPy has no numbers for.
  static std::string descr(const ::arrow::DataType& type) {
    if (type.id() == ::arrow::Type::BOOL) return "|b1";
    const char kind = ::arrow::is_signed_integer(type.id())     ? 'i'
                      : ::arrow::is_unsigned_integer(type.id()) ? 'u'
                      : ::arrow::is_floating(type.id())         ? 'f'
                                                                : '\0';
    if (!kind) return "";
    return (type.byte_width() == 1 ? "|" : "<") + std::string(1, kind) + std::to_string(type.byte_width());
  }

  Values in_shape(ArrayPointer array) const {
    Values values{std::move(array), {}};
    values.shape.push_back(values.flat->length());
    while (true) {
      if (values.flat->type_id() == ::arrow::Type::EXTENSION) {
        const auto& tensors = static_cast<const ::arrow::ExtensionArray&>(*values.flat);
        const auto* shaped = dynamic_cast<const ::arrow::extension::FixedShapeTensorType*>(values.flat->type().get());
        const auto storage = tensors.storage();
        if (!shaped || !shaped->permutation().empty()) throw unfit();
        if (storage->null_count() > 0) throw unfit();
        values.flat = check(static_cast<const ::arrow::FixedSizeListArray&>(*storage).Flatten());
        values.shape.insert(values.shape.end(), shaped->shape().begin(), shaped->shape().end());
      } else if (values.flat->type_id() == ::arrow::Type::FIXED_SIZE_LIST) {
        const auto& lists = static_cast<const ::arrow::FixedSizeListArray&>(*values.flat);
        if (lists.null_count() > 0) throw unfit();
        values.shape.push_back(lists.value_length());
        values.flat = check(lists.Flatten());
      } else if (::arrow::is_list_like(values.flat->type_id())) {
        values.shape.push_back(common_length(values.flat));
        values.flat = values.flat->type_id() == ::arrow::Type::LIST
                          ? check(static_cast<const ::arrow::ListArray&>(*values.flat).Flatten())
                          : check(static_cast<const ::arrow::LargeListArray&>(*values.flat).Flatten());
      } else {
        values.flat = without_nulls(values.flat, values.shape.size() > 1);
        return values;
      }
    }
  }

  template <typename Lists>
  static std::int64_t length_of(const ::arrow::Array& array, std::int64_t row) {
    return static_cast<const Lists&>(array).value_length(row);
  }

  // For all kinds of lists.
  std::int64_t common_length(const ArrayPointer& array) const {
    const bool large = array->type_id() == ::arrow::Type::LARGE_LIST;
    if ((!large && array->type_id() != ::arrow::Type::LIST) || array->null_count() > 0) throw unfit();
    const auto length = [&](std::int64_t row) {
      return large ? length_of<::arrow::LargeListArray>(*array, row) : length_of<::arrow::ListArray>(*array, row);
    };
    for (std::int64_t row = 1; row < array->length(); ++row) {
      if (length(row) != length(0)) throw unfit();
    }
    return array->length() > 0 ? length(0) : 0;
  }

  ArrayPointer without_nulls(const ArrayPointer& array, bool nested) const {
    if (array->null_count() == 0) return array;
    if (nested || array->type_id() == ::arrow::Type::BOOL) throw unfit();
    // NumPy has no nulls: integers with nulls become floats, as in NumPy's own tools.
    const auto type = ::arrow::is_floating(array->type_id()) ? array->type() : ::arrow::float64();
    const auto reals = check(::arrow::compute::Cast(*array, type, ::arrow::compute::CastOptions::Unsafe()));
    const auto nan = check(::arrow::MakeScalar(std::numeric_limits<double>::quiet_NaN())->CastTo(type));
    return check(::arrow::compute::CallFunction("coalesce", {reals, nan})).make_array();
  }

  static std::string header(const std::string& descr, const std::vector<std::int64_t>& shape) {
    std::string sizes;
    for (const auto size : shape) sizes += std::to_string(size) + (shape.size() == 1 ? "," : ", ");
    if (shape.size() > 1) sizes.resize(sizes.size() - 2);
    std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + sizes + "), }";
    constexpr std::size_t kBefore = 10;  // magic, version, length
    text.append(63 - (kBefore + text.size()) % 64, ' ');
    text += '\n';
    std::string made("\x93NUMPY\x01\x00", 8);
    made += static_cast<char>(text.size() & 0xff);
    made += static_cast<char>(text.size() >> 8);
    return made + text;
  }

  std::string column_;
  std::shared_ptr<::arrow::DataType> type_;
  Output file_;
  ::arrow::ArrayVector parts_;
};

}  // namespace

void write_numpy(const Dataset& dataset, const std::string& folder, const std::string& column,
                 const WriteFilesOptions& options) {
  const auto names = dataset.columns();
  if (std::find(names.begin(), names.end(), column) == names.end()) {
    std::string there;
    for (const auto& each : names) there += (there.empty() ? "" : ", ") + each;
    throw ValueError("write_numpy(column): no column named '" + column + "'; the columns are " + there);
  }
  dataset::load_kernels();
  dataset::write_files(
      dataset.select_columns({column}), folder, ".npy", options,
      [&](const auto& schema, const Output& file) { return std::make_unique<NpyFile>(column, *schema, file); });
}

}  // namespace trireme::data
