#include "boosting/worker_rows.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>
#include <variant>

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
    while (const Batch* batch = read()) grouped_->take(numbers(*batch));
    rows = grouped_->finish();
  } else {
    while (const RowBatch* batch = next()) rows += batch->rows;
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
  if (!at_) {
    at_ = shard_.iter_batches({.batch_size = kBatchRows}).begin();
  } else {
    ++*at_;
  }
  if (*at_ != std::default_sentinel) return &**at_;
  at_.reset();
  return nullptr;
}

const RowBatch* WorkerRows::next() {
  if (grouped_) return grouped_->next();
  if (all_kept_) return next_kept_ < kept_.size() ? &kept_[next_kept_++] : nullptr;
  const Batch* batch = read();
  if (batch == nullptr) {
    all_kept_ = keeps_;
    return nullptr;
  }
  current_ = numbers(*batch);
  if (keeps_) bytes_ += current_.columns->bytes();
  if (bytes_ > kKeptBytes) {
    keeps_ = false;
    kept_.clear();
    kept_.shrink_to_fit();
  }
  return keeps_ ? &kept_.emplace_back(std::move(current_)) : &current_;
}

std::vector<RowBatch> WorkerRows::taken() {
  all_kept_ = keeps_ = false;
  return std::move(kept_);
}

RowBatch WorkerRows::numbers(const Batch& batch) const {
  auto features = std::make_unique<FeatureColumns>(batch, columns_);
  RowBatch made;
  made.rows = batch.rows();
  made.labels = complete(features->batch(), "label", columns_.label);
  if (!columns_.weight.empty()) made.weights = complete(features->batch(), "weight", columns_.weight);
  made.columns = std::move(features);
  return made;
}

std::vector<float> WorkerRows::complete(const ExportedBatch& rows, const char* what, const std::string& column) const {
  std::vector<float> made(static_cast<std::size_t>(rows.rows()));
  read_numbers(rows.column(column), made.data());
  if (std::any_of(made.begin(), made.end(), [](float value) { return std::isnan(value); })) {
    throw std::runtime_error("dataset \"" + dataset_ + "\": the " + what + " column \"" + column +
                             "\" has missing values; drop the rows");
  }
  return made;
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
