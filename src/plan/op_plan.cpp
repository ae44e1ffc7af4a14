#include <algorithm>
#include <optional>
#include <utility>

#include "plan/ops.h"

namespace trireme::plan {
namespace {

// The output of an op for one fragment.
class OpProducer final : public ArrayProducer {
 public:
  OpProducer(std::shared_ptr<Op> op, std::shared_ptr<const data::Schema> columns, std::unique_ptr<Input> input,
             Where where, std::int64_t end)
      : op_(std::move(op)), columns_(std::move(columns)), input_(std::move(input)), where_(where), end_(end) {}

  base::Result<OwnedSchema> schema() override { return columns_->exported(); }

  base::Result<OwnedArray> next() override {
    while (where_.row < end_) {
      auto batch = input_->next(std::min(op_->batch_rows(), end_ - where_.row));
      may_pass_ = input_->may_pass();
      if (!batch) return std::move(batch).error();
      if (batch->rows() == 0) return OwnedArray();
      TRIREME_ASSIGN(auto record, op_->apply(*batch, where_), "{}", op_->name());
      where_.row += batch->rows();
      if (record.array->length > 0) return std::move(record.array);
    }
    return OwnedArray();
  }

  bool may_pass() const override { return may_pass_; }

 private:
  std::shared_ptr<Op> op_;  // shared with the plan
  std::shared_ptr<const data::Schema> columns_;
  std::unique_ptr<Input> input_;
  Where where_;
  std::int64_t end_;  // rows from here on are not needed
  bool may_pass_ = false;
};

class OpPlan final : public Plan {
 public:
  OpPlan(std::shared_ptr<Plan> input, std::unique_ptr<Op> op) : input_(std::move(input)), op_(std::move(op)) {}

  std::string name() const override { return input_->name() + "." + op_->name(); }
  std::vector<std::shared_ptr<Plan>> inputs() const override { return {input_}; }
  // Shuffling the output is as good as shuffling the input.
  std::optional<Shuffle> shuffle() const override { return input_->shuffle(); }

  base::Result<std::shared_ptr<const data::Schema>> schema() override {
    TRIREME_ASSIGN(auto known, known_now());
    return known.columns;
  }

  std::int64_t revision() override { return input_->revision() + op_->revision(); }

  base::Result<data::Opened> open(std::size_t fragment, std::int64_t row, std::int64_t end) override {
    TRIREME_ASSIGN(auto known, known_now());
    std::int64_t first = op_->keeps_rows() ? row : 0;
    if (!op_->keeps_rows()) end = data::kNoEnd;
    if (const std::int64_t batch = op_->batch_rows(); op_->is_aligned()) {
      first -= first % batch;
      if (end != data::kNoEnd) end += (batch - end % batch) % batch;
    }
    std::int64_t before = 0;
    if (op_->is_positional() && fragment > 0) {
      TRIREME_ASSIGN(const auto fragments, input_->counted());
      for (std::size_t i = 0; i < fragment; ++i) before += fragments[i].rows;
    }
    TRIREME_ASSIGN(auto input, Input::open(*input_, fragment, first, end));
    // The op knows the columns of that revision only.
    if (revision() != known.revision) return base::error("{}: the types of its input have changed", op_->name());
    return data::Opened{make_stream(std::make_unique<OpProducer>(std::move(known.op), std::move(known.columns),
                                                                 std::move(input), Where{first, before}, end)),
                        first};
  }

  Work work() const override {
    Work work = input_->work();
    work.costly = work.costly || op_->is_function();
    work.keeps_rows = work.keeps_rows && op_->keeps_rows();
    if (op_->is_aligned()) work.made_together = std::max(work.made_together, op_->batch_rows());
    return work;
  }

 protected:
  base::Result<std::vector<DataFragment>> list() override {
    TRIREME_ASSIGN(auto fragments, input_->fragments());
    if (op_->keeps_rows()) return fragments;
    std::optional<std::int64_t> before = 0;  // unknown after a fragment that is not counted
    for (auto& each : fragments) {
      const auto rows = std::exchange(each.rows, std::nullopt);
      if (!rows) before.reset();
      if (!before) continue;
      const std::int64_t known = op_->count(*before, *rows);
      if (known >= 0) each.rows = known;
      *before += *rows;
    }
    return fragments;
  }

  // If no rows are added or dropped, the input's count is ours, and other plans may need it too.
  base::Result<std::int64_t> count(std::size_t fragment, base::WaitingNote& note) override {
    if (!op_->keeps_rows()) return Plan::count(fragment, note);
    TRIREME_ASSIGN(const auto fragments, input_->counted());
    return fragments[fragment].rows;
  }

 private:
  // The op after learn(), and its columns.
  struct Known {
    std::shared_ptr<Op> op;  // shared with the streams
    std::shared_ptr<const data::Schema> columns;
    std::int64_t revision = 0;
  };

  // Learns again if a function's later rows have needed wider types.
  base::Result<Known> known_now() {
    std::lock_guard lock(mutex_);
    while (!known_ || known_->revision != revision()) {
      const std::int64_t before = revision();
      std::shared_ptr<Op> op = op_->again();
      auto columns = learn(*op);
      if (columns) known_ = Known{std::move(op), *std::move(columns), before};
      else if (revision() == before) return std::move(columns).error().wrap(op_->name());
    }
    return *known_;
  }

  base::Result<std::shared_ptr<const data::Schema>> learn(Op& op) {
    TRIREME_ASSIGN(const auto before, input_->schema());
    TRIREME_ASSIGN(auto columns, op.learn(data::Batch::empty(before)));
    if (columns) return columns;
    TRIREME_ASSIGN(const auto fragments, input_->fragments());
    for (std::size_t i = 0; i < fragments.size(); ++i) {
      TRIREME_ASSIGN(auto input, Input::open(*input_, i, 0), "{}", fragments[i].name);
      while (true) {
        TRIREME_ASSIGN(const auto batch, input->next(op.batch_rows()), "{}", fragments[i].name);
        if (batch.rows() == 0) break;
        TRIREME_ASSIGN(columns, op.learn(batch), "{}", fragments[i].name);
        if (columns) return columns;
      }
    }
    return before;  // the function is never called
  }

  std::shared_ptr<Plan> input_;         // shared with the input dataset
  const std::unique_ptr<const Op> op_;  // before learn()
  std::mutex mutex_;
  std::optional<Known> known_;
};

}  // namespace

std::int64_t Op::count(std::int64_t, std::int64_t) const { return -1; }

std::shared_ptr<Plan> op_plan(std::shared_ptr<Plan> input, std::unique_ptr<Op> op) {
  return std::make_shared<OpPlan>(std::move(input), std::move(op));
}

}  // namespace trireme::plan
