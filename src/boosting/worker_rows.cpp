#include "boosting/worker_rows.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <variant>

#include "boosting/column_reader.h"
#include "boosting/grouped_rows.h"
#include "boosting/json_text.h"
#include "trireme/context.h"
#include "trireme/store.h"

namespace trireme::boosting {
namespace {

// A worker keeps its rows between the passes over them up to this size, and reads them again otherwise.
constexpr std::int64_t kKeptBytes = 1LL << 30;
constexpr std::chrono::seconds kGatherTimeout(1800);

using Key = ExportedBatch::Key;

// The index of each value among the categories; NaN for other values and nulls.
void read_codes(const ExportedBatch& rows, const std::string& column, const List& categories, double* out,
                std::size_t stride) {
  std::map<Key, double> codes;
  for (std::size_t index = 0; index < categories.size(); ++index) {
    const Value& value = categories[index];
    const auto* text = value.get_if<std::string>();
    codes[text != nullptr ? Key(std::string_view(*text)) : Key(value.as_int())] = static_cast<double>(index);
  }
  rows.read_keys(column, [&](std::int64_t row, const Key& key) {
    const auto found = codes.find(key);
    out[static_cast<std::size_t>(row) * stride] =
        found == codes.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
  });
}

}  // namespace

WorkerRows::WorkerRows(std::string dataset, const RowColumns& columns, bool everything)
    : dataset_(std::move(dataset)), columns_(columns), shard_(get_dataset_shard(dataset_)) {
  if (!columns.group.empty()) grouped_ = std::make_unique<GroupedRows>(dataset_, columns, everything);
}

WorkerRows::~WorkerRows() = default;

std::int64_t WorkerRows::count() {
  std::int64_t rows = 0;
  rewind();
  if (grouped_) {
    while (const Batch* batch = read()) {
      fill(*batch);
      grouped_->take(batch_, *batch);
    }
    release();
    rows = grouped_->finish();
  } else {
    while (const Batch* batch = read()) rows += batch->rows();
  }
  const std::vector<Value> counts = gathered("rows/" + dataset_, rows);
  std::string empty, all;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    all += (all.empty() ? "" : ", ") + std::to_string(counts[rank].as_int());
    if (counts[rank].as_int() == 0) empty += (empty.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (!empty.empty()) {
    throw std::runtime_error("dataset \"" + dataset_ + "\" has no " + (grouped_ ? "query groups" : "rows") +
                             " for rank " + empty + " (rows by rank: [" + all + "]): use fewer workers, or more rows");
  }
  return rows;
}

// From the beginning, whatever the position in the checkpoint.
void WorkerRows::rewind() {
  if (grouped_) grouped_->rewind();
  next_kept_ = 0;
  if (all_kept_) return;
  at_.reset();
  kept_.clear();
  bytes_ = 0;
  Dict state = shard_.state();
  state["epoch"] = 0;
  state["rows"] = 0;
  shard_.load_state(state);
}

const Batch* WorkerRows::read() {
  if (all_kept_) return next_kept_ < kept_.size() ? &kept_[next_kept_++] : nullptr;
  if (!at_) {
    at_ = shard_.iter_batches({.batch_size = kBatchRows}).begin();
  } else {
    ++*at_;
  }
  if (*at_ == std::default_sentinel) {
    all_kept_ = keeps_;
    at_.reset();
    return nullptr;
  }
  current_ = **at_;
  bytes_ += current_->rows() * static_cast<std::int64_t>((columns_.features.size() + 1) * sizeof(double));
  if (bytes_ > kKeptBytes || grouped_) keeps_ = false;
  if (keeps_) {
    kept_.push_back(*current_);
  } else {
    kept_.clear();
  }
  return &*current_;
}

const RowBatch* WorkerRows::next() {
  if (grouped_) return grouped_->next();
  const Batch* batch = read();
  if (batch == nullptr) return nullptr;
  fill(*batch);
  return &batch_;
}

void WorkerRows::release() {
  kept_ = {};
  current_.reset();
  all_kept_ = false;
  keeps_ = false;
}

void WorkerRows::fill(const Batch& batch) {
  const ExportedBatch rows(batch);
  const auto count = static_cast<std::size_t>(batch.rows());
  const std::size_t width = columns_.features.size();
  batch_.rows = batch.rows();
  batch_.matrix.resize(count * width);
  ExportedBatch::Places numbers;
  for (std::size_t each = 0; each < width; ++each) {
    const std::string& name = columns_.features[each];
    if (const Value* categories = columns_.categories.find(name)) {
      read_codes(rows, name, categories->as_list(), batch_.matrix.data() + each, width);
    } else {
      numbers.emplace_back(name, each);
    }
  }
  rows.read_matrix(numbers, batch_.matrix.data(), width);
  fill_complete(rows, "label", columns_.label, batch_.labels);
  if (!columns_.weight.empty()) fill_complete(rows, "weight", columns_.weight, batch_.weights);
}

void WorkerRows::fill_complete(const ExportedBatch& rows, const char* what, const std::string& column,
                               std::vector<float>& out) const {
  out.resize(static_cast<std::size_t>(rows.rows()));
  rows.read_numbers(column, out.data());
  if (std::any_of(out.begin(), out.end(), [](float value) { return std::isnan(value); })) {
    throw std::runtime_error("dataset \"" + dataset_ + "\": the " + what + " column \"" + column +
                             "\" has missing values; drop the rows");
  }
}

Dict agreed_categories(const std::string& dataset, const RowColumns& columns, const std::vector<std::string>& names) {
  if (names.empty()) return {};
  std::map<std::string, std::set<std::string>> texts;
  std::map<std::string, std::set<std::int64_t>> numbers;
  DataShard shard = get_dataset_shard(dataset);
  Dict state = shard.state();
  state["epoch"] = 0;
  state["rows"] = 0;
  shard.load_state(state);
  for (const Batch& batch : shard.iter_batches({.batch_size = kBatchRows})) {
    const ExportedBatch rows(batch);
    for (const auto& name : names) {
      rows.read_keys(name, [&](std::int64_t, const Key& key) {
        if (const auto* text = std::get_if<std::string_view>(&key)) {
          if (auto& found = texts[name]; !found.contains(std::string(*text))) found.emplace(*text);
        } else if (const auto* number = std::get_if<std::int64_t>(&key)) {
          numbers[name].insert(*number);
        }
      });
    }
  }
  Dict mine;
  for (const auto& name : names) {
    List values(texts[name].begin(), texts[name].end());
    values.insert(values.end(), numbers[name].begin(), numbers[name].end());
    mine[name] = std::move(values);
  }
  for (const Value& other : gathered("categories", mine)) {
    for (const auto& name : names) {
      for (const Value& value : other[name].as_list()) {
        if (const auto* text = value.get_if<std::string>()) {
          texts[name].insert(*text);
        } else {
          numbers[name].insert(value.as_int());
        }
      }
    }
  }
  Dict agreed;
  for (const auto& name : columns.features) {  // in their order
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    List values(texts[name].begin(), texts[name].end());
    values.insert(values.end(), numbers[name].begin(), numbers[name].end());
    agreed[name] = std::move(values);
  }
  return agreed;
}

std::vector<Value> gathered(const std::string& key, const Value& value) {
  if (context().world_size == 1) return {value};
  const std::string prefix = "boosting/" + key + "/";
  store::set(prefix + std::to_string(context().world_rank), to_json(value));
  std::vector<std::string> keys;
  for (int rank = 0; rank < context().world_size; ++rank) keys.push_back(prefix + std::to_string(rank));
  std::vector<Value> values;
  for (const auto& text : store::multi_get(keys, kGatherTimeout)) {
    values.push_back(from_json(text));
  }
  return values;
}

}  // namespace trireme::boosting
