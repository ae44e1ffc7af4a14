#ifdef TRIREME_HAS_SQLITE
#include <arrow/c/bridge.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <sqlite3.h>
#endif

#include <memory>
#include <stdexcept>
#include <utility>

#include "file_source.h"
#include "plan/value_columns.h"
#include "status.h"
#include "trireme/arrow/data.h"
#include "unified.h"

// A connection for read_sql() to a SQLite file. A column has the type of its values, since SQLite does not enforce
// types.

namespace trireme::data {

#ifdef TRIREME_HAS_SQLITE
namespace {

using dataset::BatchPointer;
using dataset::check;

constexpr std::size_t kRowsAtOnce = 50'000;

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
};
struct FinishStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
using Statement = std::unique_ptr<sqlite3_stmt, FinishStatement>;

Database open_database(const std::string& file) {
  sqlite3* opened = nullptr;
  const int code = sqlite3_open_v2(file.c_str(), &opened, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, nullptr);
  Database database(opened);
  if (code != SQLITE_OK) {
    throw std::runtime_error(file + ": " + (database ? sqlite3_errmsg(database.get()) : sqlite3_errstr(code)));
  }
  sqlite3_busy_timeout(database.get(), 5000);  // as in Python
  return database;
}

void bind(sqlite3_stmt* statement, int at, const Value& value) {
  const auto size = [](const std::string& text) { return static_cast<sqlite3_uint64>(text.size()); };
  int code = SQLITE_OK;
  if (value.is_null()) {
    code = sqlite3_bind_null(statement, at);
  } else if (const auto* flag = value.get_if<bool>()) {
    code = sqlite3_bind_int64(statement, at, *flag ? 1 : 0);
  } else if (const auto* number = value.get_if<std::int64_t>()) {
    code = sqlite3_bind_int64(statement, at, *number);
  } else if (const auto* real = value.get_if<double>()) {
    code = sqlite3_bind_double(statement, at, *real);
  } else if (const auto* text = value.get_if<std::string>()) {
    code = sqlite3_bind_text64(statement, at, text->data(), size(*text), SQLITE_TRANSIENT, SQLITE_UTF8);
  } else if (const auto* bytes = value.get_if<Bytes>()) {
    code = sqlite3_bind_blob64(statement, at, bytes->data.data(), size(bytes->data), SQLITE_TRANSIENT);
  } else {
    throw ValueError("sqlite: parameter " + std::to_string(at) + " is a list or a dict, which SQLite does not support");
  }
  if (code != SQLITE_OK) throw std::runtime_error(sqlite3_errmsg(sqlite3_db_handle(statement)));
}

Statement prepare(sqlite3* database, const std::string& query, const List& parameters) {
  sqlite3_stmt* prepared = nullptr;
  if (sqlite3_prepare_v2(database, query.c_str(), -1, &prepared, nullptr) != SQLITE_OK) {
    throw std::runtime_error(sqlite3_errmsg(database));
  }
  Statement statement(prepared);
  if (sqlite3_column_count(prepared) == 0) throw std::runtime_error("it returns no rows; expected a SELECT");
  const int wanted = sqlite3_bind_parameter_count(prepared);
  if (static_cast<std::size_t>(wanted) != parameters.size()) {
    throw std::runtime_error("it has " + std::to_string(wanted) + " question marks, but there are " +
                             std::to_string(parameters.size()) + " parameters");
  }
  for (int i = 0; i < wanted; ++i) bind(prepared, i + 1, parameters[static_cast<std::size_t>(i)]);
  return statement;
}

Value value_of(sqlite3_stmt* statement, int column) {
  const auto bytes = [&](const void* data) {
    const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement, column));
    return size == 0 ? std::string() : std::string(static_cast<const char*>(data), size);
  };
  switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER: return static_cast<std::int64_t>(sqlite3_column_int64(statement, column));
    case SQLITE_FLOAT: return sqlite3_column_double(statement, column);
    case SQLITE_TEXT: return bytes(sqlite3_column_text(statement, column));
    case SQLITE_BLOB: return Bytes{bytes(sqlite3_column_blob(statement, column))};
    default: return {};
  }
}

BatchPointer batch_of(const std::vector<std::string>& names, std::vector<List> columns) {
  Dict values;
  for (std::size_t i = 0; i < names.size(); ++i) values.append(names[i], std::move(columns[i]));
  auto record = plan::record_of_columns(values);
  if (!record) throw std::runtime_error(record.error().message());
  return check(::arrow::ImportRecordBatch(&*record->array, &*record->schema));
}

// One type for each column, by the rules of all datasets.
std::shared_ptr<::arrow::Table> joined(std::vector<BatchPointer> batches) {
  auto schema = batches.front()->schema();
  std::int64_t row = 0;
  for (const auto& batch : batches) {
    for (int i = 0; i < schema->num_fields(); ++i) {
      const auto before = schema->field(i);
      const auto here = batch->schema()->field(i);
      const auto both = dataset::unified(before, here);
      if (!both) {
        throw std::runtime_error("column '" + here->name() + "' is " + here->type()->ToString() + " from row " +
                                 std::to_string(row) + " on and " + before->type()->ToString() +
                                 " in the rows before; cast it in the query");
      }
      schema = check(schema->SetField(i, both));
    }
    row += batch->num_rows();
  }
  for (auto& batch : batches) batch = check(dataset::conformed(*batch, schema));
  return check(::arrow::Table::FromRecordBatches(schema, batches));
}

std::shared_ptr<::arrow::Table> fetch(sqlite3* database, sqlite3_stmt* statement) {
  std::vector<std::string> names;
  for (int i = 0; i < sqlite3_column_count(statement); ++i) names.emplace_back(sqlite3_column_name(statement, i));
  std::vector<List> columns(names.size());
  std::vector<BatchPointer> batches;
  int code = SQLITE_ROW;
  while (code == SQLITE_ROW) {
    code = sqlite3_step(statement);
    if (code != SQLITE_ROW && code != SQLITE_DONE) throw std::runtime_error(sqlite3_errmsg(database));
    if (code == SQLITE_ROW) {
      for (std::size_t i = 0; i < names.size(); ++i) columns[i].push_back(value_of(statement, static_cast<int>(i)));
    }
    const std::size_t rows = columns.front().size();
    if (rows < kRowsAtOnce && (code == SQLITE_ROW || (rows == 0 && !batches.empty()))) continue;
    batches.push_back(batch_of(names, std::exchange(columns, std::vector<List>(names.size()))));
  }
  return joined(std::move(batches));
}

}  // namespace

SqlConnection sqlite(const std::string& file, const List& parameters) {
  return [file, parameters](const std::string& query, ArrowArrayStream* rows) {
    const Database database = open_database(file);
    const Statement statement = prepare(database.get(), query, parameters);
    auto reader = std::make_shared<::arrow::TableBatchReader>(fetch(database.get(), statement.get()));
    check(::arrow::ExportRecordBatchReader(std::move(reader), rows));
  };
}
#else
SqlConnection sqlite(const std::string&, const List&) {
  throw std::runtime_error(
      "sqlite() needs SQLite, but trireme::data was built without it: install libsqlite3-dev and rebuild");
}
#endif

}  // namespace trireme::data
