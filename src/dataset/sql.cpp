#include <arrow/c/bridge.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <arrow/util/byte_size.h>

#include <algorithm>

#include "status.h"
#include "table_source.h"
#include "trireme/arrow/data.h"

// read_sql(): the result is kept as a table and split into slices.

namespace trireme::data {
namespace {

using dataset::check;

constexpr std::int64_t kMostFragmentRows = 131'072;
constexpr std::int64_t kFragmentBytes = std::int64_t{16} << 20;
// Small results are split too, since functions may take long per row.
constexpr std::int64_t kFewFragments = 12;
constexpr std::int64_t kFewRows = 32;

class SqlSource final : public dataset::TableSource {
 public:
  SqlSource(std::string query, SqlConnection connection)
      : TableSource("read_sql"), query_(std::move(query)), connection_(std::move(connection)) {}

 private:
  dataset::TablePointer compute() override {
    ArrowArrayStream stream{};
    try {
      connection_(query_, &stream);
      return check(check(check(::arrow::ImportRecordBatchReader(&stream))->ToTable())->CombineChunks());
    } catch (const std::exception& error) {
      throw std::runtime_error("'" + query_ + "': " + error.what());
    }
  }

  std::optional<std::int64_t> slices(const ::arrow::Table& table, std::int64_t row_bytes) const override {
    const std::int64_t rows = table.num_rows();
    const std::int64_t most = std::clamp(kFragmentBytes / row_bytes, std::int64_t{1}, kMostFragmentRows);
    return std::max({(rows + most - 1) / most, std::min(kFewFragments, rows / kFewRows), std::int64_t{1}});
  }

  std::int64_t row_bytes(const ::arrow::Table& table) const override {
    const std::int64_t bytes = check(::arrow::util::ReferencedBufferSize(table));
    return std::max<std::int64_t>(bytes / std::max<std::int64_t>(table.num_rows(), 1), 1);
  }

  std::string query_;
  SqlConnection connection_;
};

}  // namespace

Dataset read_sql(const std::string& query, SqlConnection connection) {
  if (!connection) throw ValueError("read_sql: connection: expected a function that runs a query");
  return from_source(std::make_shared<SqlSource>(query, std::move(connection)));
}

}  // namespace trireme::data
