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

base::Result<Columns> types_of(const std::vector<Dict>& rows, Columns before, std::int64_t first) {
  return columns_of(rows, std::move(before), first);
}
base::Result<Columns> types_of(const Dict& columns, Columns before, std::int64_t first) {
  TRIREME_ASSIGN(auto types, columns_of(columns, std::move(before), first), "its result");
  return types;
}
base::Result<Record> record_with(const std::vector<Dict>& rows, const Columns& columns, std::int64_t first) {
  return record_of_rows(rows, columns, first);
}
base::Result<Record> record_with(const Dict& values, const Columns& columns, std::int64_t first) {
  TRIREME_ASSIGN(auto record, record_of_columns(values, columns, first), "its result");
  return record;
}

// A function of the program. Returned: rows, or a dict of columns.
template <typename Returned>
class FunctionOp : public Op {
 public:
  bool is_function() const override { return true; }
  std::int64_t batch_rows() const override { return kRowsAtOnce; }
  std::int64_t revision() const override { return known_->revision(); }

  // Every worker tries the same rows, however long that takes: all must agree on the columns.
  base::Result<SchemaPointer> learn(const data::Batch& example) override {
    if (auto known = known_->known()) {
      columns_ = *std::move(known);
    } else {
      if (example.rows() == 0) return SchemaPointer();
      TRIREME_ASSIGN(const auto returned, run(example, {}, true));
      TRIREME_ASSIGN(auto columns, types_of(returned, {}, 0));
      TRIREME_ASSIGN(const auto record, record_with(returned, columns, 0));
      TRIREME_TRY(check_rows(record.array->length, example.rows(), {}));
      if (record.array->length == 0) return SchemaPointer();
      columns_ = std::move(columns);
      known_->learn(columns_, *example.schema());
    }
    TRIREME_ASSIGN(auto record, record_of_rows({}, known_->shown(columns_)));
    return data::Schema::take(finished(data::Batch::empty(example.schema()), std::move(record)).schema);
  }

  base::Result<Record> apply(const data::Batch& batch, Where where) override {
    TRIREME_ASSIGN(const auto returned, run(batch, where, false));
    TRIREME_ASSIGN(const auto found, types_of(returned, columns_, where.row));
    if (found != columns_) TRIREME_TRY(known_->widen(columns_, found));
    TRIREME_ASSIGN(auto record, record_with(returned, known_->shown(columns_), where.row));
    TRIREME_TRY(check_rows(record.array->length, batch.rows(), where));
    return finished(batch, std::move(record));
  }

 private:
  // `trial`: a part of the batch is enough.
  virtual base::Result<Returned> run(const data::Batch& batch, Where where, bool trial) const = 0;
  virtual base::Result<void> check_rows(std::int64_t, std::int64_t, Where) const { return {}; }
  // The output, with the columns that the function has returned.
  virtual Record finished(const data::Batch&, Record record) const { return record; }

  std::shared_ptr<FunctionColumns> known_ = std::make_shared<FunctionColumns>();  // shared with again()
  Columns columns_;  // written by learn(), before the first apply()
};

// map() and flat_map().
class RowFunction final : public FunctionOp<std::vector<Dict>> {
 public:
  using Function = std::function<void(const Dict& row, std::vector<Dict>& out)>;
  RowFunction(std::string name, bool keeps_rows, Function function)
      : name_(std::move(name)), keeps_rows_(keeps_rows), function_(std::move(function)) {}

  std::string name() const override { return name_; }
  bool keeps_rows() const override { return keeps_rows_; }
  std::unique_ptr<Op> again() const override { return std::make_unique<RowFunction>(*this); }

 private:
  base::Result<std::vector<Dict>> run(const data::Batch& batch, Where where, bool trial) const override {
    TRIREME_ASSIGN(const auto rows, rows_of(batch));
    std::vector<Dict> out;
    out.reserve(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (trial && i >= kTriedRows && !out.empty()) break;
      TRIREME_TRY(called(where.row++, [&] { return function_(rows[i], out), true; }));
    }
    return out;
  }

  std::string name_;
  bool keeps_rows_;
  Function function_;
};

class BatchFunction final : public FunctionOp<Dict> {
 public:
  BatchFunction(std::function<Dict(const Batch&)> function, const MapBatchesOptions& options)
      : function_(std::move(function)), options_(options) {}

  std::string name() const override { return "map_batches()"; }
  bool keeps_rows() const override { return !options_.changes_row_count; }
  std::int64_t batch_rows() const override { return options_.batch_size; }
  bool is_aligned() const override { return true; }
  std::unique_ptr<Op> again() const override { return std::make_unique<BatchFunction>(*this); }

 private:
  base::Result<Dict> run(const data::Batch& batch, Where where, bool) const override {
    return called(where.row, [&] { return function_(public_batch(batch)); });
  }

  base::Result<void> check_rows(std::int64_t returned, std::int64_t given, Where) const override {
    if (!keeps_rows() || returned == given) return {};
    return base::error("the function returned {} for {}: set changes_row_count in its options",
                       base::count_of(returned, "row"), given);
  }

  std::function<Dict(const Batch&)> function_;
  MapBatchesOptions options_;
};

class AddColumn final : public FunctionOp<Dict> {
 public:
  AddColumn(std::string column, std::function<Value(const Batch&)> function)
      : column_(std::move(column)), function_(std::move(function)) {}

  std::string name() const override { return fmt::format("add_column({})", column_); }
  bool is_aligned() const override { return true; }
  std::unique_ptr<Op> again() const override { return std::make_unique<AddColumn>(*this); }

 private:
  base::Result<Dict> run(const data::Batch& batch, Where where, bool) const override {
    TRIREME_ASSIGN(auto value, called(where.row, [&] { return function_(public_batch(batch)); }));
    // One value for all rows.
    if (!value.get_if<List>() && !value.get_if<Tensor>()) {
      value = List(static_cast<std::size_t>(batch.rows()), std::move(value));
    }
    return Dict{{column_, std::move(value)}};
  }

  base::Result<void> check_rows(std::int64_t returned, std::int64_t given, Where where) const override {
    if (returned == given) return {};
    return base::error("the function returned {} for {}, rows {} to {}", base::count_of(returned, "value"),
                       base::count_of(given, "row"), where.row, where.row + given - 1);
  }

  Record finished(const data::Batch& batch, Record record) const override {
    return with_columns(batch, std::move(record));
  }

  std::string column_;
  std::function<Value(const Batch&)> function_;
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
