#include <exception>
#include <mutex>

#include "base/text.h"
#include "plan/stream_op.h"

namespace trireme::plan {
namespace {

std::string columns_text(const data::Schema& schema) {
  std::vector<std::string> columns;
  for (const auto& field : schema.fields()) columns.push_back(fmt::format("{}: {}", field.name, field.type.text()));
  return base::join(columns, ", ");
}

class StreamPlan final : public Plan {
 public:
  StreamPlan(std::shared_ptr<Plan> input, std::shared_ptr<const StreamOp> op)
      : input_(std::move(input)), op_(std::move(op)) {}

  std::string name() const override { return input_->name() + "." + op_->name(); }
  std::vector<std::shared_ptr<Plan>> inputs() const override { return {input_}; }
  std::optional<Shuffle> shuffle() const override { return input_->shuffle(); }

  Work work() const override {
    Work work = input_->work();
    work.keeps_rows = work.keeps_rows && op_->keeps_rows();
    return work;
  }

  base::Result<std::shared_ptr<const data::Schema>> schema() override {
    std::lock_guard lock(mutex_);
    const std::int64_t revision = input_->revision();
    if (columns_ && revision == revision_) return columns_;
    TRIREME_ASSIGN(const auto before, input_->schema());
    TRIREME_TRY(check_columns(*before), "{}", op_->name());
    ArrowSchema given = before->exported().give();
    OwnedSchema made;
    // Exception boundary: the operation belongs to a library.
    try {
      op_->schema(&given, &*made);
    } catch (const std::exception& thrown) {
      return base::error("{}: {}. The columns are {}", op_->name(), thrown.what(), columns_text(*before));
    }
    TRIREME_ASSIGN(columns_, data::Schema::take(std::move(made)), "{}", op_->name());
    revision_ = revision;
    return columns_;
  }

  base::Result<data::Opened> open(std::size_t fragment, std::int64_t row, std::int64_t end) override {
    TRIREME_TRY(schema());
    const bool part = op_->keeps_rows();
    TRIREME_ASSIGN(auto opened, input_->open(fragment, part ? row : 0, part ? end : data::kNoEnd));
    data::Opened made;
    made.first_row = opened.first_row;
    try {
      op_->apply(&*opened.stream, &*made.stream);
    } catch (const std::exception& thrown) {
      return base::error("{}: {}", op_->name(), thrown.what());
    }
    return made;
  }

 protected:
  base::Result<std::vector<DataFragment>> list() override {
    TRIREME_ASSIGN(auto fragments, input_->fragments());
    if (op_->keeps_rows()) return fragments;
    for (auto& each : fragments) each.rows.reset();
    return fragments;
  }

  base::Result<std::int64_t> count(std::size_t fragment, base::WaitingNote& note) override {
    if (!op_->keeps_rows()) return Plan::count(fragment, note);
    TRIREME_ASSIGN(const auto fragments, input_->counted());
    return fragments[fragment].rows;
  }

 private:
  base::Result<void> check_columns(const data::Schema& schema) const {
    std::vector<std::string> names;
    for (const auto& field : schema.fields()) names.push_back(field.name);
    for (const auto& column : op_->columns()) {
      if (schema.find(column)) continue;
      return base::error("no column named '{}'{}. The columns are {}", column, base::did_you_mean(column, names),
                         columns_text(schema));
    }
    return {};
  }

  std::shared_ptr<Plan> input_;         // shared with the input dataset
  std::shared_ptr<const StreamOp> op_;  // shared with its creator
  std::mutex mutex_;
  std::shared_ptr<const data::Schema> columns_;
  std::int64_t revision_ = 0;  // of the input, at columns_
};

}  // namespace

std::shared_ptr<Plan> stream_plan(std::shared_ptr<Plan> input, std::shared_ptr<const StreamOp> op) {
  return std::make_shared<StreamPlan>(std::move(input), std::move(op));
}

}  // namespace trireme::plan
