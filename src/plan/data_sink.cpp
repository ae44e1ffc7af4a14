#include "trireme/data_sink.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/read.h"
#include "plan/rows.h"
#include "plan/value_or_throw.h"

namespace trireme {

void DataSink::on_write_start(const std::vector<DataColumn>&) {}
void DataSink::on_write_complete(const WriteResult&) {}
void DataSink::on_write_failed(const std::exception&) {}

namespace data {
namespace {

using plan::value_or_throw;

// The rows of a call of write(), unless the sink sets min_rows_per_write.
constexpr std::int64_t kWriteBytes = std::int64_t{128} << 20;

// The rows of one call after the other.
class Blocks final : public DataBlocks {
 public:
  Blocks(std::unique_ptr<plan::Input> input, const DataSink& sink)
      : input_(std::move(input)), all_(!sink.supports_distributed_writes()) {
    if (!all_) rows_per_call_ = sink.min_rows_per_write();
  }

  std::optional<trireme::Batch> next() override {
    if (is_full() || !more()) return {};
    const Batch batch = *std::move(head_);
    head_.reset();
    call_rows_ += batch.rows();
    call_bytes_ += batch.bytes();
    rows_ += batch.rows();
    bytes_ += batch.bytes();
    return plan::public_batch(batch);
  }

  bool more() {
    if (!head_) {
      const std::int64_t wanted = rows_per_call_ ? std::min(*rows_per_call_ - call_rows_, plan::kRowsInMemory) : 0;
      Batch batch = value_or_throw(input_->next(wanted));
      if (batch.rows() > 0) head_ = std::move(batch);
    }
    return head_.has_value();
  }

  // Skips the rows that write() has not requested.
  void finish() {
    while (next()) continue;
    call_rows_ = call_bytes_ = 0;
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  bool is_full() const {
    if (all_) return false;
    return rows_per_call_ ? call_rows_ >= *rows_per_call_ : call_bytes_ >= kWriteBytes;
  }

  std::unique_ptr<plan::Input> input_;
  bool all_;
  std::optional<std::int64_t> rows_per_call_;
  std::optional<Batch> head_;  // not passed yet
  std::int64_t call_rows_ = 0;
  std::int64_t call_bytes_ = 0;
  std::int64_t rows_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace

void write_datasink(const Dataset& dataset, DataSink& sink) {
  if (const auto rows = sink.min_rows_per_write(); rows && *rows < 1) {
    throw ValueError(
        fmt::format("{}: min_rows_per_write() is {}; expected a number of rows, 1 or more", sink.name(), *rows));
  }
  const auto schema = value_or_throw(dataset.plan()->schema());
  std::vector<DataColumn> columns;
  for (const auto& field : schema->fields()) columns.push_back({field.name, field.type.text()});
  sink.on_write_start(columns);
  WriteResult result;
  try {
    Blocks blocks(plan::stream_input(value_or_throw(plan::whole_stream(dataset.plan())), schema), sink);
    while (blocks.more() || result.write_returns.empty()) {
      result.write_returns.push_back(sink.write(blocks, std::ssize(result.write_returns)));
      blocks.finish();
    }
    result.num_rows = blocks.rows();
    result.size_bytes = blocks.bytes();
  } catch (const std::exception& error) {  // the sink belongs to the program or a library
    sink.on_write_failed(error);
    throw;
  }
  sink.on_write_complete(result);
}

}  // namespace data
}  // namespace trireme
