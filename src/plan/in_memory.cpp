#include <cstring>
#include <numeric>

#include "data/stream.h"
#include "plan/plan.h"
#include "plan/record.h"
#include "plan/value_columns.h"
#include "plan/value_or_throw.h"
#include "trireme/data.h"

// Datasets that are created in memory.

namespace trireme {
namespace {

using plan::value_or_throw;

// Small enough for several open fragments, large enough to be worth opening.
constexpr std::int64_t kFragmentRows = 65536;

// Numbers that are generated on demand.
class Range final : public DataSource {
 public:
  // Without a shape: one column of numbers.
  Range(std::int64_t rows, std::optional<std::vector<std::int64_t>> shape) : rows_(rows), shape_(std::move(shape)) {
    for (std::int64_t size : shape_.value_or(std::vector<std::int64_t>())) row_values_ *= size;
  }

  std::string name() const override { return fmt::format("{}({})", shape_ ? "range_tensor" : "range", rows_); }

  std::vector<DataFragment> list() override {
    std::vector<DataFragment> fragments;
    for (std::int64_t begin = 0; begin == 0 || begin < rows_; begin += kFragmentRows) {
      const std::int64_t count = std::min(kFragmentRows, rows_ - begin);
      fragments.push_back({fmt::format("{} from {}", name(), begin), count, count * row_values_ * 8});
    }
    return fragments;
  }

  std::int64_t open(std::size_t fragment, std::int64_t row, ArrowArrayStream* stream) override {
    const std::int64_t begin = static_cast<std::int64_t>(fragment) * kFragmentRows + row;
    const std::int64_t end = std::min((static_cast<std::int64_t>(fragment) + 1) * kFragmentRows, rows_);
    std::vector<std::int64_t> shape = shape_.value_or(std::vector<std::int64_t>());
    shape.insert(shape.begin(), end - begin);
    Tensor tensor(DType::kI64, std::move(shape));
    auto values = tensor.values<std::int64_t>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = begin + static_cast<std::int64_t>(i) / row_values_;
    }
    auto record = value_or_throw(plan::record_of_columns({{shape_ ? "data" : "id", tensor}}));
    *stream = plan::stream_of({value_or_throw(plan::batch_of(std::move(record)))}).give();
    return row;
  }

 private:
  std::int64_t rows_;
  std::optional<std::vector<std::int64_t>> shape_;
  std::int64_t row_values_ = 1;
};

void expect_rows(std::int64_t rows, const char* call) {
  if (rows < 0) throw ValueError(fmt::format("{}({}): expected a number of rows, 0 or more", call, rows));
}

// Split into fragments.
Dataset in_memory(const std::string& name, plan::Record record) {
  auto whole = value_or_throw(plan::batch_of(std::move(record)));
  auto plan = plan::memory_plan(name, {std::move(whole)});
  const std::int64_t rows = value_or_throw(plan->counted()).front().rows;
  Dataset made(plan);
  return rows > kFragmentRows ? made.repartition((rows + kFragmentRows - 1) / kFragmentRows).materialize() : made;
}

}  // namespace

namespace data {

Dataset from_source(std::shared_ptr<DataSource> source) { return Dataset(plan::source_plan(std::move(source))); }

Dataset range(std::int64_t rows) {
  expect_rows(rows, "range");
  return from_source(std::make_shared<Range>(rows, std::nullopt));
}

Dataset range_tensor(std::int64_t rows, const std::vector<std::int64_t>& shape) {
  expect_rows(rows, "range_tensor");
  return from_source(std::make_shared<Range>(rows, shape));
}

Dataset from_items(const std::vector<Dict>& rows) {
  if (rows.empty()) throw ValueError("from_items(): the list is empty, so the columns are unknown");
  const auto columns = value_or_throw(plan::columns_of(rows));
  return in_memory("from_items()", value_or_throw(plan::record_of_rows(rows, columns)));
}

Dataset from_columns(const Dict& columns) {
  return in_memory("from_columns()", value_or_throw(plan::record_of_columns(columns)));
}

Dataset from_stream(ArrowArrayStream* stream) {
  OwnedStream taken(*stream);
  OwnedSchema schema;
  if (taken->get_schema(&*taken, &*schema) != 0) {
    const char* told = taken->get_last_error(&*taken);
    throw std::runtime_error(fmt::format("from_stream(): {}", told ? told : "the stream has no schema"));
  }
  auto columns = value_or_throw(Schema::take(std::move(schema)));
  CommonSchema common;
  Stream chunks(std::move(taken), common);
  std::vector<Batch> batches;
  while (true) {
    std::optional<Stream::Failure> failure;
    const auto chunk = chunks.next(failure);
    if (failure) throw std::runtime_error("from_stream(): " + failure->error.message());
    if (!chunk) break;
    const Run all{0, 0, chunk->rows()};
    batches.push_back(value_or_throw(Batch::gather({&chunk, 1}, {&all, 1})));
  }
  if (batches.empty()) batches.push_back(Batch::empty(std::move(columns)));
  return Dataset(plan::memory_plan("from_stream()", std::move(batches)));
}

}  // namespace data
}  // namespace trireme
