#include <arrow/c/bridge.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <arrow/util/byte_size.h>

#include <algorithm>

#include "status.h"
#include "trireme/arrow/data.h"
#include "trireme/data_source.h"

// read_sql(): the result is kept as a table and split into slices.

namespace trireme::data {
namespace {

using dataset::check;

constexpr std::int64_t kMostFragmentRows = 131'072;
constexpr std::int64_t kFragmentBytes = std::int64_t{16} << 20;
// Small results are split too, since functions may take long per row.
constexpr std::int64_t kFewFragments = 12;
constexpr std::int64_t kFewRows = 32;

class SqlSource final : public DataSource {
 public:
  SqlSource(std::string query, SqlConnection connection)
      : query_(std::move(query)), connection_(std::move(connection)) {}

  std::string name() const override { return "read_sql"; }

  std::vector<DataFragment> list() override {
    ArrowArrayStream stream{};
    try {
      connection_(query_, &stream);
      table_ = check(check(::arrow::ImportRecordBatchReader(&stream))->ToTable());
    } catch (const std::exception& error) {
      throw std::runtime_error("'" + query_ + "': " + error.what());
    }
    table_ = check(table_->CombineChunks());
    const std::int64_t rows = table_->num_rows();
    const std::int64_t bytes = check(::arrow::util::ReferencedBufferSize(*table_));
    const std::int64_t row_bytes = std::max<std::int64_t>(bytes / std::max<std::int64_t>(rows, 1), 1);
    const std::int64_t most = std::clamp(kFragmentBytes / row_bytes, std::int64_t{1}, kMostFragmentRows);
    const std::int64_t count =
        std::max({(rows + most - 1) / most, std::min(kFewFragments, rows / kFewRows), std::int64_t{1}});
    std::vector<DataFragment> listed;
    for (std::int64_t part = 0; part < count; ++part) {
      const std::int64_t begin = rows * part / count;
      const std::int64_t end = rows * (part + 1) / count;
      starts_.push_back(begin);
      listed.push_back({"read_sql, rows " + std::to_string(begin) + " to " + std::to_string(end - 1), end - begin,
                        (end - begin) * row_bytes});
      rows_.push_back(end - begin);
    }
    return listed;
  }

  std::int64_t open(std::size_t fragment, std::int64_t row, ArrowArrayStream* stream) override {
    const auto slice = table_->Slice(starts_[fragment] + row, rows_[fragment] - row);
    auto batches = std::make_shared<::arrow::TableBatchReader>(slice);  // shared with the stream
    check(::arrow::ExportRecordBatchReader(std::move(batches), stream));
    return row;
  }

 private:
  std::string query_;
  SqlConnection connection_;
  std::shared_ptr<::arrow::Table> table_;  // shared with streams
  std::vector<std::int64_t> starts_;       // of the fragments
  std::vector<std::int64_t> rows_;
};

}  // namespace

Dataset read_sql(const std::string& query, SqlConnection connection) {
  if (!connection) throw ValueError("read_sql: connection: expected a function that runs a query");
  return from_source(std::make_shared<SqlSource>(query, std::move(connection)));
}

}  // namespace trireme::data
