#include <algorithm>
#include <set>

#include "base/text.h"
#include "plan/plan.h"
#include "plan/record.h"

// zip().

namespace trireme::plan {
namespace {

using Names = std::vector<std::string>;

// The names of the right columns next to the left ones.
Names new_names(const data::Schema& left, const data::Schema& right) {
  std::set<std::string> taken;
  for (const auto& field : left.fields()) taken.insert(field.name);
  Names names;
  for (const auto& field : right.fields()) {
    std::string chosen = field.name;
    for (int number = 1; taken.contains(chosen); ++number) chosen = fmt::format("{}_{}", field.name, number);
    taken.insert(chosen);
    names.push_back(std::move(chosen));
  }
  return names;
}

Record side_by_side(const data::Batch& left, const data::Batch& right, const Names& names) {
  auto columns = split(left.exported());
  std::size_t added = 0;
  for (auto& column : split(right.exported())) {
    columns.push_back({renamed(std::move(column.schema), names[added++]), std::move(column.array)});
  }
  return record_of(std::move(columns), left.rows());
}

class ZipProducer final : public ArrayProducer {
 public:
  // rows: the number that is needed.
  ZipProducer(std::unique_ptr<Input> left, std::unique_ptr<Input> right, Names names, std::int64_t rows)
      : left_(std::move(left)), right_(std::move(right)), names_(std::move(names)), rows_(rows) {}

  base::Result<OwnedSchema> schema() override {
    return side_by_side(data::Batch::empty(left_->schema()), data::Batch::empty(right_->schema()), names_).schema;
  }

  base::Result<OwnedArray> next() override {
    if (rows_ == 0) return OwnedArray();
    auto mine = left_->next(std::min(rows_, kRowsAtOnce));
    may_pass_ = left_->may_pass();
    if (!mine) return std::move(mine).error();
    if (mine->rows() == 0) return OwnedArray();
    auto its = right_->next(mine->rows());
    rows_ -= mine->rows();
    may_pass_ = right_->may_pass();
    if (!its) return std::move(its).error();
    if (its->rows() != mine->rows()) return base::error("zip: the second dataset is shorter than the first");
    return side_by_side(*mine, *its, names_).array;
  }

  bool may_pass() const override { return may_pass_; }

 private:
  static constexpr std::int64_t kRowsAtOnce = 65536;

  std::unique_ptr<Input> left_;
  std::unique_ptr<Input> right_;
  Names names_;
  std::int64_t rows_;
  bool may_pass_ = false;
};

// Each fragment of the left with the matching rows of the right.
class ZipPlan final : public Plan {
 public:
  ZipPlan(std::shared_ptr<Plan> left, std::shared_ptr<Plan> right) : left_(std::move(left)), right_(std::move(right)) {}

  std::string name() const override { return left_->name() + ".zip(...)"; }
  std::vector<std::shared_ptr<Plan>> inputs() const override { return {left_, right_}; }
  // Both are read in parallel.
  std::int64_t decoding_bytes() const override { return left_->decoding_bytes() + right_->decoding_bytes(); }

  base::Result<std::shared_ptr<const data::Schema>> schema() override {
    TRIREME_ASSIGN(const auto mine, left_->schema());
    TRIREME_ASSIGN(const auto its, right_->schema());
    auto record = side_by_side(data::Batch::empty(mine), data::Batch::empty(its), new_names(*mine, *its));
    return data::Schema::take(std::move(record.schema));
  }

  // A part may have more rows than were asked for on one side only: the rows are counted.
  base::Result<data::Opened> open(std::size_t fragment, std::int64_t row, std::int64_t end) override {
    end = std::min(end, rows_[fragment]);
    TRIREME_ASSIGN(auto mine, Input::open(*left_, fragment, row, end));
    TRIREME_ASSIGN(auto its, Input::open(*beside_, fragment, row, end));
    auto names = new_names(*mine->schema(), *its->schema());
    auto rows = std::make_unique<ZipProducer>(std::move(mine), std::move(its), std::move(names), end - row);
    return data::Opened{make_stream(std::move(rows)), row};
  }

 protected:
  base::Result<std::vector<DataFragment>> list() override {
    TRIREME_ASSIGN(const auto mine, left_->counted());
    TRIREME_ASSIGN(const auto its, right_->counted());
    const std::int64_t rows = data::size_of(mine).rows;
    if (const std::int64_t others = data::size_of(its).rows; rows != others) {
      return base::error("zip: one dataset has {} and the other {}; limit() makes them equal",
                         base::count_of(rows, "row"), others);
    }
    beside_ = cut_plan(right_, "zip()", [mine](const auto& fragments) { return cut_at(mine, fragments); });
    TRIREME_ASSIGN(const auto parts, beside_->counted());
    std::vector<DataFragment> listed;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      listed.push_back(
          {fmt::format("{} beside {}", mine[i].name, parts[i].name), mine[i].rows, mine[i].bytes + parts[i].bytes});
      rows_.push_back(mine[i].rows);
    }
    return listed;
  }

 private:
  // Pieces of the fragments with the row counts of `edges`.
  static base::Result<std::vector<std::vector<data::FragmentSlice>>> cut_at(
      const std::vector<data::Fragment>& edges, const std::vector<data::Fragment>& fragments) {
    std::vector<std::vector<data::FragmentSlice>> made;
    std::size_t fragment = 0;
    std::int64_t row = 0;
    for (const auto& each : edges) {
      auto& pieces = made.emplace_back();
      for (std::int64_t missing = each.rows; missing > 0;) {
        const std::int64_t count = std::min(missing, fragments[fragment].rows - row);
        if (count > 0) pieces.push_back({fragment, row, count});
        row += count;
        missing -= count;
        if (row == fragments[fragment].rows) {
          ++fragment;
          row = 0;
        }
      }
    }
    return made;
  }

  std::shared_ptr<Plan> left_;  // shared with the zipped datasets
  std::shared_ptr<Plan> right_;
  std::vector<std::int64_t> rows_;  // by fragment, once listed
  std::shared_ptr<Plan> beside_;    // the right plan, split like the left one, once listed; shared with streams
};

}  // namespace

std::shared_ptr<Plan> zip_plan(std::shared_ptr<Plan> left, std::shared_ptr<Plan> right) {
  return std::make_shared<ZipPlan>(settled_plan(std::move(left)), settled_plan(std::move(right)));
}

}  // namespace trireme::plan
