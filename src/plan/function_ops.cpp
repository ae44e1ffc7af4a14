#include "base/text.h"
#include "data/random.h"
#include "plan/function_columns.h"
#include "plan/ops.h"
#include "plan/rows.h"
#include "plan/selection.h"
#include "plan/value_columns.h"
#include "trireme/context.h"

namespace trireme::plan {
namespace {

using SchemaPointer = std::shared_ptr<const data::Schema>;

// Number of rows per call of row functions: enough to make the overhead small, few enough to start quickly.
constexpr std::int64_t kRowsAtOnce = 1024;
constexpr std::size_t kTriedRows = 128;

// Exception boundary: anything the user's function throws is an error of the row.
template <typename F>
auto called(std::int64_t row, F call) -> base::Result<decltype(call())> {
  try {
    return call();
  } catch (const std::exception& thrown) {
    return base::error("row {}: {}", row, thrown.what());
  } catch (const Interrupted&) {
    return base::error("row {}: interrupted", row);
  } catch (...) {
    return base::error("row {}: an exception that is not a std::exception", row);
  }
}

// map() and flat_map().
class RowFunction final : public Op {
 public:
  using Function = std::function<void(const Dict& row, std::vector<Dict>& out)>;
  RowFunction(std::string name, bool keeps_rows, Function function)
      : name_(std::move(name)), keeps_rows_(keeps_rows), function_(std::move(function)) {}

  std::string name() const override { return name_; }
  bool keeps_rows() const override { return keeps_rows_; }
  std::int64_t batch_rows() const override { return kRowsAtOnce; }

  bool is_function() const override { return true; }

  // Every worker tries the same rows, however long that takes: all must agree on the columns.
  base::Result<SchemaPointer> learn(const data::Batch& example) override {
    if (const auto known = known_->known()) {
      columns_ = *known;
      return schema();
    }
    TRIREME_ASSIGN(const auto given, rows_of(example));
    std::vector<Dict> rows;
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (i >= kTriedRows && !rows.empty()) break;
      TRIREME_TRY(called(static_cast<std::int64_t>(i), [&] { return function_(given[i], rows), true; }));
    }
    if (rows.empty()) return SchemaPointer();
    TRIREME_ASSIGN(columns_, columns_of(rows));
    known_->learn(columns_, *example.schema());
    return schema();
  }

  base::Result<Record> apply(const data::Batch& batch, Where where) override {
    TRIREME_ASSIGN(const auto rows, run(batch, where));
    TRIREME_ASSIGN(const auto found, columns_of(rows, columns_, where.row));
    if (found != columns_) TRIREME_TRY(known_->widen(columns_, found));
    return record_of_rows(rows, known_->shown(columns_), where.row);
  }

  std::unique_ptr<Op> again() const override { return std::make_unique<RowFunction>(*this); }
  std::int64_t revision() const override { return known_->revision(); }

 private:
  base::Result<SchemaPointer> schema() const {
    TRIREME_ASSIGN(auto record, record_of_rows({}, known_->shown(columns_)));
    return taken_schema(std::move(record));
  }

  base::Result<std::vector<Dict>> run(const data::Batch& batch, Where where) const {
    TRIREME_ASSIGN(const auto rows, rows_of(batch));
    std::vector<Dict> out;
    out.reserve(rows.size());
    for (const auto& row : rows) {
      TRIREME_TRY(called(where.row++, [&] { return function_(row, out), true; }));
    }
    return out;
  }

  std::string name_;
  bool keeps_rows_;
  Function function_;
  std::shared_ptr<FunctionColumns> known_ = std::make_shared<FunctionColumns>();  // shared with again()
  Columns columns_;  // written by learn(), before the first apply()
};

class BatchFunction final : public Op {
 public:
  BatchFunction(std::function<Dict(const Batch&)> function, const MapBatchesOptions& options)
      : function_(std::move(function)), options_(options) {}

  std::string name() const override { return "map_batches()"; }
  bool keeps_rows() const override { return !options_.changes_row_count; }
  std::int64_t batch_rows() const override { return options_.batch_size; }
  bool is_aligned() const override { return true; }
  bool is_function() const override { return true; }

  base::Result<SchemaPointer> learn(const data::Batch& example) override {
    if (const auto known = known_->known()) {
      columns_ = *known;
      return schema();
    }
    if (example.rows() == 0) return SchemaPointer();
    TRIREME_ASSIGN(const auto values, run(example, {}));
    TRIREME_ASSIGN(auto columns, columns_of(values), "its result");
    TRIREME_ASSIGN(const auto record, record_of_columns(values, columns), "its result");
    TRIREME_TRY(check_rows(record, example));
    if (record.array->length == 0) return SchemaPointer();
    columns_ = std::move(columns);
    known_->learn(columns_, *example.schema());
    return schema();
  }

  base::Result<Record> apply(const data::Batch& batch, Where where) override {
    TRIREME_ASSIGN(const auto values, run(batch, where));
    TRIREME_ASSIGN(const auto found, columns_of(values, columns_, where.row), "its result");
    if (found != columns_) TRIREME_TRY(known_->widen(columns_, found));
    TRIREME_ASSIGN(auto record, record_of_columns(values, known_->shown(columns_), where.row), "its result");
    TRIREME_TRY(check_rows(record, batch));
    return record;
  }

  std::unique_ptr<Op> again() const override { return std::make_unique<BatchFunction>(*this); }
  std::int64_t revision() const override { return known_->revision(); }

 private:
  base::Result<SchemaPointer> schema() const {
    TRIREME_ASSIGN(auto record, record_of_rows({}, known_->shown(columns_)));
    return taken_schema(std::move(record));
  }

  base::Result<Dict> run(const data::Batch& batch, Where where) const {
    return called(where.row, [&] { return function_(public_batch(batch)); });
  }

  base::Result<void> check_rows(const Record& record, const data::Batch& batch) const {
    if (!keeps_rows() || record.array->length == batch.rows()) return {};
    return base::error("the function returned {} for {}: set changes_row_count in its options",
                       base::count_of(record.array->length, "row"), batch.rows());
  }

  std::function<Dict(const Batch&)> function_;
  MapBatchesOptions options_;
  std::shared_ptr<FunctionColumns> known_ = std::make_shared<FunctionColumns>();  // shared with again()
  Columns columns_;  // written by learn(), before the first apply()
};

class AddColumn final : public Op {
 public:
  AddColumn(std::string column, std::function<Value(const Batch&)> function)
      : column_(std::move(column)), function_(std::move(function)) {}

  std::string name() const override { return fmt::format("add_column({})", column_); }
  std::int64_t batch_rows() const override { return kRowsAtOnce; }
  bool is_aligned() const override { return true; }
  bool is_function() const override { return true; }

  base::Result<SchemaPointer> learn(const data::Batch& example) override {
    if (auto known = known_->known()) {
      columns_ = *std::move(known);
    } else {
      if (example.rows() == 0) return SchemaPointer();
      TRIREME_ASSIGN(const auto values, run(example, {}));
      TRIREME_ASSIGN(auto columns, columns_of(values), "its result");
      TRIREME_ASSIGN(const auto record, record_of_columns(values, columns), "its result");
      TRIREME_TRY(check_rows(record, example, {}));
      columns_ = std::move(columns);
      known_->learn(columns_, *example.schema());
    }
    TRIREME_ASSIGN(auto record, record_of_rows({}, known_->shown(columns_)));
    return taken_schema(with_columns(data::Batch::empty(example.schema()), std::move(record)));
  }

  base::Result<Record> apply(const data::Batch& batch, Where where) override {
    TRIREME_ASSIGN(const auto values, run(batch, where));
    TRIREME_ASSIGN(const auto found, columns_of(values, columns_, where.row), "its result");
    if (found != columns_) TRIREME_TRY(known_->widen(columns_, found));
    TRIREME_ASSIGN(auto record, record_of_columns(values, known_->shown(columns_), where.row), "its result");
    TRIREME_TRY(check_rows(record, batch, where));
    return with_columns(batch, std::move(record));
  }

  std::unique_ptr<Op> again() const override { return std::make_unique<AddColumn>(*this); }
  std::int64_t revision() const override { return known_->revision(); }

 private:
  base::Result<Dict> run(const data::Batch& batch, Where where) const {
    TRIREME_ASSIGN(auto value, called(where.row, [&] { return function_(public_batch(batch)); }));
    // One value for all rows.
    if (!value.get_if<List>() && !value.get_if<Tensor>()) {
      value = List(static_cast<std::size_t>(batch.rows()), std::move(value));
    }
    return Dict{{column_, std::move(value)}};
  }

  static base::Result<void> check_rows(const Record& record, const data::Batch& batch, Where where) {
    if (record.array->length == batch.rows()) return {};
    return base::error("the function returned {} for {}, rows {} to {}", base::count_of(record.array->length, "value"),
                       base::count_of(batch.rows(), "row"), where.row, where.row + batch.rows() - 1);
  }

  std::string column_;
  std::function<Value(const Batch&)> function_;
  std::shared_ptr<FunctionColumns> known_ = std::make_shared<FunctionColumns>();  // shared with again()
  Columns columns_;  // written by learn(), before the first apply()
};

class Filter final : public Selection {
 public:
  explicit Filter(std::function<bool(const Dict&)> keeps) : keeps_(std::move(keeps)) {}
  std::string name() const override { return "filter()"; }
  std::int64_t batch_rows() const override { return kRowsAtOnce; }
  bool is_function() const override { return true; }
  std::unique_ptr<Op> again() const override { return std::make_unique<Filter>(*this); }

 private:
  base::Result<std::vector<bool>> choose(const data::Batch& batch, Where where) const override {
    TRIREME_ASSIGN(const auto rows, rows_of(batch));
    std::vector<bool> chosen;
    for (const auto& row : rows) {
      TRIREME_ASSIGN(const bool keeps, called(where.row++, [&] { return keeps_(row); }));
      chosen.push_back(keeps);
    }
    return chosen;
  }

  std::function<bool(const Dict&)> keeps_;
};

class Sample final : public Selection {
 public:
  Sample(double fraction, std::uint64_t seed) : fraction_(fraction), seed_(seed) {}
  std::string name() const override { return fmt::format("random_sample({})", fraction_); }

  bool is_positional() const override { return true; }
  std::unique_ptr<Op> again() const override { return std::make_unique<Sample>(*this); }

  std::int64_t count(std::int64_t first_row, std::int64_t rows) const override {
    std::int64_t chosen = 0;
    for (std::int64_t i = 0; i < rows; ++i) chosen += data::samples(seed_, first_row + i, fraction_) ? 1 : 0;
    return chosen;
  }

 private:
  base::Result<std::vector<bool>> choose(const data::Batch& batch, Where where) const override {
    std::vector<bool> chosen;
    const std::int64_t first = where.before + where.row;
    for (std::int64_t i = 0; i < batch.rows(); ++i) chosen.push_back(data::samples(seed_, first + i, fraction_));
    return chosen;
  }

  double fraction_;
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<Op> map_op(std::function<Dict(const Dict&)> function) {
  return std::make_unique<RowFunction>(
      "map()", true, [function = std::move(function)](const Dict& row, auto& out) { out.push_back(function(row)); });
}

std::unique_ptr<Op> flat_map_op(std::function<std::vector<Dict>(const Dict&)> function) {
  return std::make_unique<RowFunction>(
      "flat_map()", false, [function = std::move(function)](const Dict& row, std::vector<Dict>& out) {
        auto made = function(row);
        out.insert(out.end(), std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
      });
}

std::unique_ptr<Op> map_batches_op(std::function<Dict(const Batch&)> function, const MapBatchesOptions& options) {
  return std::make_unique<BatchFunction>(std::move(function), options);
}

std::unique_ptr<Op> filter_op(std::function<bool(const Dict&)> keeps) {
  return std::make_unique<Filter>(std::move(keeps));
}

std::unique_ptr<Op> add_column_op(std::string column, std::function<Value(const Batch&)> function) {
  return std::make_unique<AddColumn>(std::move(column), std::move(function));
}

std::unique_ptr<Op> sample_op(double fraction, std::uint64_t seed) { return std::make_unique<Sample>(fraction, seed); }

}  // namespace trireme::plan
