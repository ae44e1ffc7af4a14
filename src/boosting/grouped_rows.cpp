#include "boosting/grouped_rows.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <variant>

#include "boosting/column_reader.h"
#include "trireme/context.h"

namespace trireme::boosting {
namespace {

// As zlib.crc32() in Python.
std::uint32_t crc32(std::string_view text) {
  std::uint32_t crc = 0xffffffff;
  for (const char each : text) {
    crc ^= static_cast<unsigned char>(each);
    for (int step = 0; step < 8; ++step) crc = (crc >> 1) ^ (0xedb88320U & (0U - (crc & 1U)));
  }
  return ~crc;
}

}  // namespace

GroupedRows::GroupedRows(std::string dataset, const RowColumns& columns, bool everything)
    : dataset_(std::move(dataset)), columns_(columns), everything_(everything) {}

bool GroupedRows::is_mine(const std::string& key) {
  const int world = context().world_size;
  const auto known = first_.find(key);
  if (known != first_.end()) return known->second == context().world_rank;
  const int count = static_cast<int>(first_.size());
  if (count < world) return first_.emplace(key, count).first->second == context().world_rank;
  return crc32(key) % static_cast<std::uint32_t>(world) == static_cast<std::uint32_t>(context().world_rank);
}

std::int32_t GroupedRows::group_of(const std::string& key) {
  if (!everything_ && !is_mine(key)) return -1;
  return numbers_.try_emplace(key, static_cast<std::int32_t>(numbers_.size())).first->second;
}

void GroupedRows::take(const RowBatch& batch) {
  const std::size_t width = columns_.features.size();
  const std::vector<double> all = batch.columns->matrix();
  std::vector<double> matrix;
  batch.columns->batch().read_keys(columns_.group, [&](std::int64_t row, const ExportedBatch::Key& key) {
    std::string text;
    if (const auto* string = std::get_if<std::string_view>(&key)) {
      text = *string;
    } else if (const auto* number = std::get_if<std::int64_t>(&key)) {
      text = std::to_string(*number);
    } else {
      throw std::runtime_error("dataset \"" + dataset_ + "\": the group column \"" + columns_.group + "\" has nulls");
    }
    const std::int32_t group = group_of(text);
    if (group < 0) return;
    const auto at = static_cast<std::size_t>(row);
    const double* const features = all.data() + at * width;
    matrix.insert(matrix.end(), features, features + width);
    all_.labels.push_back(batch.labels[at]);
    if (!batch.weights.empty()) all_.weights.push_back(batch.weights[at]);
    all_.groups.push_back(group);
  });
  matrix.shrink_to_fit();
  for (std::size_t row = 0; row * width < matrix.size(); ++row) features_.push_back(matrix.data() + row * width);
  matrices_.push_back(std::move(matrix));
}

std::int64_t GroupedRows::finish() {
  order_.resize(all_.groups.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(), [this](std::int64_t a, std::int64_t b) {
    return all_.groups[static_cast<std::size_t>(a)] < all_.groups[static_cast<std::size_t>(b)];
  });
  return static_cast<std::int64_t>(order_.size());
}

const RowBatch* GroupedRows::next() {
  if (next_ == order_.size()) return nullptr;
  const std::size_t width = columns_.features.size();
  const std::size_t end = std::min(next_ + static_cast<std::size_t>(kBatchRows), order_.size());
  batch_ = {};
  batch_.rows = static_cast<std::int64_t>(end - next_);
  for (; next_ < end; ++next_) {
    const auto at = static_cast<std::size_t>(order_[next_]);
    const double* const features = features_[at];
    batch_.matrix.insert(batch_.matrix.end(), features, features + width);
    batch_.labels.push_back(all_.labels[at]);
    if (!all_.weights.empty()) batch_.weights.push_back(all_.weights[at]);
    batch_.groups.push_back(all_.groups[at]);
  }
  return &batch_;
}

}  // namespace trireme::boosting
