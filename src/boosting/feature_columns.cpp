#include "boosting/feature_columns.h"

#include <algorithm>
#include <limits>
#include <map>

#include "boosting/decimal_reader.h"

namespace trireme::boosting {
namespace {

constexpr std::int64_t kBlockRows = 512;

}  // namespace

FeatureColumns::FeatureColumns(const Batch& batch, const RowColumns& columns) : batch_(batch) {
  for (const auto& name : columns.features) {
    if (const Value* categories = columns.categories.find(name)) {
      columns_.push_back(codes(name, categories->as_list()));
    } else {
      const ColumnView view = batch_.column(name);
      columns_.push_back(width_of(view) > 0 ? in_place(view) : converted(view));
    }
  }
}

FeatureColumns::Column FeatureColumns::in_place(const ColumnView& view) {
  const std::size_t width = width_of(view);
  const std::uint8_t* validity = view.validity;
  if (validity != nullptr && view.first % 8 != 0) {
    auto& bits = bits_.emplace_back((static_cast<std::size_t>(view.rows) + 7) / 8);
    for (std::int64_t row = 0; row < view.rows; ++row) {
      if (!view.is_null(row)) bits[static_cast<std::size_t>(row) / 8] |= static_cast<std::uint8_t>(1U << (row % 8));
    }
    validity = bits.data();
  } else if (validity != nullptr) {
    validity += view.first / 8;
  }
  const auto* values = static_cast<const std::byte*>(view.buffers[1]);
  return {view.format, width, {validity, values + static_cast<std::size_t>(view.first) * width}};
}

FeatureColumns::Column FeatureColumns::converted(const ColumnView& view) {
  const auto rows = static_cast<std::size_t>(view.rows);
  if (DecimalReader::reads(view.format)) {
    auto& values = doubles_.emplace_back(rows);
    read_numbers(view, values.data());
    return {"g", sizeof(double), {nullptr, values.data()}};
  }
  auto& values = floats_.emplace_back(rows);
  read_numbers(view, values.data());
  return {"f", sizeof(float), {nullptr, values.data()}};
}

// The index of each value among the categories; NaN for other values and nulls.
FeatureColumns::Column FeatureColumns::codes(const std::string& name, const List& categories) {
  using Key = ExportedBatch::Key;
  std::map<Key, float> known;
  for (std::size_t index = 0; index < categories.size(); ++index) {
    const Value& value = categories[index];
    const auto* text = value.get_if<std::string>();
    known[text != nullptr ? Key(std::string_view(*text)) : Key(value.as_int())] = static_cast<float>(index);
  }
  auto& values = floats_.emplace_back(static_cast<std::size_t>(rows()));
  batch_.read_keys(name, [&](std::int64_t row, const Key& key) {
    const auto found = known.find(key);
    values[static_cast<std::size_t>(row)] =
        found == known.end() ? std::numeric_limits<float>::quiet_NaN() : found->second;
  });
  return {"f", sizeof(float), {nullptr, values.data()}};
}

std::int64_t FeatureColumns::bytes() const {
  std::size_t row = 0;
  for (const Column& column : columns_) row += column.width;
  return static_cast<std::int64_t>(row) * rows();
}

std::vector<double> FeatureColumns::matrix() const {
  const std::size_t width = columns_.size();
  std::vector<double> made(static_cast<std::size_t>(rows()) * width);
  // A few rows of all columns at a time: they stay in the cache.
  for (std::int64_t row = 0; row < rows(); row += kBlockRows) {
    for (std::size_t each = 0; each < width; ++each) {
      const Column& column = columns_[each];
      const ColumnView view{"",
                            column.format,
                            column.buffers.data(),
                            row,
                            std::min(kBlockRows, rows() - row),
                            static_cast<const std::uint8_t*>(column.buffers[0])};
      read_numbers(view, made.data() + static_cast<std::size_t>(row) * width + each, width);
    }
  }
  return made;
}

}  // namespace trireme::boosting
