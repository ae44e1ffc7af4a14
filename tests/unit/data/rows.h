#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "arrays.h"
#include "data/shard.h"

// Datasets whose rows contain their own index.

namespace trireme::tests {

// Row i of the dataset has "row" = i.
class RowSource final : public data::Source {
 public:
  RowSource(std::vector<std::int64_t> rows, std::int64_t rows_per_chunk)
      : rows_(std::move(rows)), rows_per_chunk_(rows_per_chunk) {}

  base::Result<data::Opened> open(std::size_t fragment, std::int64_t row, std::int64_t) override {
    ++opened;
    std::int64_t first = 0;
    for (std::size_t i = 0; i < fragment; ++i) first += rows_[i];
    // Sometimes starts before the row, like files do.
    const std::int64_t from = row / 3 * 2;
    StreamFault fault;
    if (fault_of) fault = fault_of(fragment);
    return data::Opened{data::OwnedStream(make_stream({row_numbers("row", first + from, actual(fragment) - from)},
                                                      rows_per_chunk_, fault)),
                        from};
  }

  std::vector<data::Fragment> fragments() const {
    std::vector<data::Fragment> made;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      made.push_back({"part-" + std::to_string(i), rows_[i], rows_[i] * 8});
    }
    return made;
  }

  std::function<StreamFault(std::size_t)> fault_of;
  std::int64_t more = 0;  // extra rows of fragment 0 that were not counted
  std::atomic<int> opened = 0;

 private:
  std::int64_t actual(std::size_t fragment) const { return rows_[fragment] + (fragment == 0 ? more : 0); }

  std::vector<std::int64_t> rows_;
  std::int64_t rows_per_chunk_;
};

inline std::vector<std::int64_t> rows_in(const data::Batch& batch) {
  auto tensor = batch.tensor(0);
  const auto values = tensor.value().values<std::int64_t>();
  return {values.begin(), values.end()};
}

// A rank's batches of one pass through an epoch.
inline std::vector<std::vector<std::int64_t>> batches_of(data::Pass& pass) {
  std::vector<std::vector<std::int64_t>> batches;
  while (true) {
    auto next = pass.next(std::chrono::seconds(60));
    if (next.value().state != data::Next::State::kBatch) return batches;
    batches.push_back(rows_in(*next->batch));
  }
}

}  // namespace trireme::tests
