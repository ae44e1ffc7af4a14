#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "plan/expression_conditions.h"
#include "plan/ops.h"
#include "plan/plan.h"
#include "plan/read.h"
#include "plan/record.h"
#include "plan/relational.h"
#include "plan/value_or_throw.h"
#include "trireme/data.h"

namespace trireme {
namespace {

using data::FragmentSlice;
using plan::value_or_throw;
using Pieces = std::vector<std::vector<FragmentSlice>>;

std::int64_t rows_in(const std::vector<data::Fragment>& fragments) {
  std::int64_t rows = 0;
  for (const auto& each : fragments) rows += each.rows;
  return rows;
}

// The fragments' rows in [begin, end).
std::vector<FragmentSlice> pieces_between(const std::vector<data::Fragment>& fragments, std::int64_t begin,
                                          std::int64_t end) {
  std::vector<FragmentSlice> pieces;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < fragments.size(); ++i) {
    const std::int64_t first = std::max(begin - at, std::int64_t{0});
    const std::int64_t last = std::min(end - at, fragments[i].rows);
    if (first < last) pieces.push_back({i, first, last - first});
    at += fragments[i].rows;
  }
  return pieces;
}

// Rows in [begin, end), in the existing fragments.
Pieces range_of(const std::vector<data::Fragment>& fragments, std::int64_t begin, std::int64_t end) {
  Pieces made;
  for (auto& piece : pieces_between(fragments, begin, end)) made.push_back({piece});
  return made;
}

// The ends of the parts are computed when the rows are known.
using End = std::function<std::int64_t(std::int64_t rows)>;

Dataset part_of(const std::shared_ptr<plan::Plan>& plan, std::string name, End begin, End end) {
  return Dataset(
      plan::cut_plan(plan, std::move(name), [begin = std::move(begin), end = std::move(end)](const auto& fragments) {
        const std::int64_t rows = rows_in(fragments);
        return base::Result<Pieces>(range_of(fragments, begin(rows), end(rows)));
      }));
}

void expect_positive(std::int64_t value, const char* call) {
  if (value < 1) throw ValueError(fmt::format("{}({}): expected a number of at least 1", call, value));
}

}  // namespace

Dataset Dataset::map(std::function<Dict(const Dict&)> function) const {
  return Dataset(plan::op_plan(plan_, plan::map_op(std::move(function))));
}

Dataset Dataset::map_batches(std::function<Dict(const Batch&)> function, const MapBatchesOptions& options) const {
  expect_positive(options.batch_size, "map_batches: batch_size");
  return Dataset(plan::op_plan(plan_, plan::map_batches_op(std::move(function), options)));
}

Dataset Dataset::flat_map(std::function<std::vector<Dict>(const Dict&)> function) const {
  return Dataset(plan::op_plan(plan_, plan::flat_map_op(std::move(function))));
}

Dataset Dataset::filter(std::function<bool(const Dict&)> keeps) const {
  return Dataset(plan::op_plan(plan_, plan::filter_op(std::move(keeps))));
}

Dataset Dataset::filter(const data::Expression& expression) const {
  DataSource* source = plan::source_behind(*plan_);
  const auto conditions = plan::conditions_of(*expression.node());
  const auto fewer = source && !conditions.empty() ? source->with_conditions(conditions) : nullptr;
  const auto* relational = value_or_throw(plan::relational("filter() with an expression"));
  return Dataset(plan::stream_plan(fewer ? plan::source_plan(fewer) : plan_, relational->filter(expression)));
}

Dataset Dataset::add_column(const std::string& column, std::function<Value(const Batch&)> function) const {
  return Dataset(plan::op_plan(plan_, plan::add_column_op(column, std::move(function))));
}

Dataset Dataset::with_column(const std::string& column, const data::Expression& expression) const {
  const auto* relational = value_or_throw(plan::relational("with_column()"));
  return Dataset(plan::stream_plan(plan_, relational->with_column(column, expression)));
}

Dataset Dataset::select_columns(std::vector<std::string> columns) const {
  DataSource* source = plan::source_behind(*plan_);
  if (auto fewer = source ? source->with_columns(columns) : nullptr) return data::from_source(std::move(fewer));
  return Dataset(plan::op_plan(plan_, plan::select_op(std::move(columns))));
}

Dataset Dataset::drop_columns(std::vector<std::string> columns) const {
  return Dataset(plan::op_plan(plan_, plan::drop_op(std::move(columns))));
}

Dataset Dataset::rename_columns(std::map<std::string, std::string> names) const {
  return Dataset(plan::op_plan(plan_, plan::rename_op(std::move(names))));
}

Dataset Dataset::limit(std::int64_t rows) const {
  if (rows < 0) throw ValueError(fmt::format("limit({}): expected a number of rows, 0 or more", rows));
  return part_of(
      plan_, fmt::format("limit({})", rows), [](std::int64_t) { return 0; },
      [rows](std::int64_t all) { return std::min(rows, all); });
}

Dataset Dataset::union_with(const Dataset& other) const { return Dataset(plan::union_plan({plan_, other.plan_})); }

Dataset Dataset::zip(const Dataset& other) const { return Dataset(plan::zip_plan(plan_, other.plan_)); }

Dataset Dataset::random_shuffle(const ShuffleOptions& options) const {
  if (options.window_rows) expect_positive(*options.window_rows, "random_shuffle: window_rows");
  return Dataset(plan::shuffle_plan(plan_, {options.seed, true, options.window_rows}));
}

Dataset Dataset::randomize_block_order(std::optional<std::int64_t> seed) const {
  if (const auto before = plan_->shuffle(); before && before->rows) return *this;
  return Dataset(plan::shuffle_plan(plan_, {seed, false, {}}));
}

Dataset Dataset::random_sample(double fraction, std::int64_t seed) const {
  if (!(fraction >= 0 && fraction <= 1)) {
    throw ValueError(fmt::format("random_sample({}): expected a number from 0 to 1", fraction));
  }
  return Dataset(plan::op_plan(plan_, plan::sample_op(fraction, static_cast<std::uint64_t>(seed))));
}

Dataset Dataset::repartition(std::int64_t fragments) const {
  expect_positive(fragments, "repartition");
  return Dataset(plan::cut_plan(plan_, fmt::format("repartition({})", fragments), [fragments](const auto& before) {
    const std::int64_t rows = rows_in(before);
    Pieces made;
    for (std::int64_t i = 0; i < fragments; ++i) {
      made.push_back(pieces_between(before, rows * i / fragments, rows * (i + 1) / fragments));
    }
    return base::Result<Pieces>(std::move(made));
  }));
}

std::vector<Dataset> Dataset::split(std::int64_t parts) const {
  expect_positive(parts, "split");
  const auto settled = plan::settled_plan(plan_);  // once for all parts
  std::vector<Dataset> made;
  for (std::int64_t i = 0; i < parts; ++i) {
    made.push_back(part_of(
        settled, fmt::format("split({})[{}]", parts, i),
        [=](std::int64_t rows) { return (rows * i + parts - 1) / parts; },
        [=](std::int64_t rows) { return (rows * (i + 1) + parts - 1) / parts; }));
  }
  return made;
}

std::vector<Dataset> Dataset::split_at_indices(const std::vector<std::int64_t>& indices) const {
  if (!std::is_sorted(indices.begin(), indices.end()) || (!indices.empty() && indices.front() < 0)) {
    throw ValueError("split_at_indices(): expected indices of at least 0, in ascending order");
  }
  const auto settled = plan::settled_plan(plan_);
  std::vector<Dataset> made;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i <= indices.size(); ++i) {
    const bool last = i == indices.size();
    const std::int64_t end = last ? 0 : indices[i];
    made.push_back(part_of(
        settled, fmt::format("split_at_indices()[{}]", i), [=](std::int64_t rows) { return std::min(begin, rows); },
        [=](std::int64_t rows) { return last ? rows : std::min(end, rows); }));
    begin = end;
  }
  return made;
}

std::pair<Dataset, Dataset> Dataset::train_test_split(double test_size, const TrainTestSplitOptions& options) const {
  if (!(test_size > 0) || (test_size >= 1 && test_size != std::floor(test_size))) {
    throw ValueError(
        fmt::format("train_test_split({}): expected a fraction between 0 and 1, or a number of rows", test_size));
  }
  const auto mixed = options.shuffle ? random_shuffle({.seed = options.seed.value_or(0)}) : *this;
  const auto settled = plan::settled_plan(mixed.plan_);
  const End train_rows = [test_size](std::int64_t rows) {
    if (test_size >= 1 || rows < 2)
      return std::max(rows - static_cast<std::int64_t>(std::ceil(test_size)), std::int64_t{0});
    // 0.07 of 100 rows are 7, although the product is slightly more.
    const auto train = static_cast<std::int64_t>(static_cast<double>(rows) * (1 - test_size) + 1e-9);
    return std::clamp(train, std::int64_t{1}, rows - 1);
  };
  const End none = [](std::int64_t) { return 0; };
  const End all = [](std::int64_t rows) { return rows; };
  return {part_of(settled, "train_test_split()[train]", none, train_rows),
          part_of(settled, "train_test_split()[test]", train_rows, all)};
}

Dataset Dataset::materialize() const {
  return Dataset(plan::memory_plan(plan_->name(), value_or_throw(plan::read_all(plan_, plan::kRowsInMemory))));
}

std::int64_t Dataset::count() const { return rows_in(value_or_throw(plan_->counted())); }

std::vector<std::string> Dataset::columns() const {
  const auto schema = value_or_throw(plan_->schema());
  std::vector<std::string> names;
  for (const auto& field : schema->fields()) names.push_back(field.name);
  return names;
}

std::string Dataset::schema() const {
  const auto schema = value_or_throw(plan_->schema());
  std::string text;
  for (const auto& field : schema->fields()) {
    text += fmt::format("{}: {}\n", field.name, field.type.text());
  }
  return text;
}

std::size_t Dataset::num_fragments() const { return value_or_throw(plan_->fragments()).size(); }

void Dataset::export_to(ArrowArrayStream* stream) const { *stream = value_or_throw(plan::whole_stream(plan_)).give(); }

}  // namespace trireme
