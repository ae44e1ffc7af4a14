#include "api/preprocessors/transform_op.h"

namespace trireme::api::preprocessing {
namespace {

class TransformOp final : public Op {
 public:
  TransformOp(std::shared_ptr<const Kind> kind, bool back) : kind_(std::move(kind)), back_(back) {}

  std::string name() const override {
    return fmt::format("{}.{}()", kind_->name(), back_ ? "inverse_transform" : "transform");
  }

  bool is_function() const override { return !kind_->function_argument().empty(); }

  // A batch without rows tells: what comes out depends on types alone.
  base::Result<std::shared_ptr<const data::Schema>> learn(const data::Batch& example) override {
    TRIREME_ASSIGN(auto record, changed(example));
    ArrowSchema c_schema = record.schema.give();
    return data::Schema::take(c_schema);
  }

  base::Result<Record> apply(const data::Batch& batch, Where) override { return changed(batch); }

 private:
  base::Result<Record> changed(const data::Batch& batch) const {
    Table table = Table::of(batch);
    TRIREME_ASSIGN(auto changes, back_ ? kind_->change_back(table) : kind_->change(table));
    table.apply(std::move(changes));
    return std::move(table).record();
  }

  std::shared_ptr<const Kind> kind_;  // shared with the preprocessor
  bool back_;
};

}  // namespace

std::unique_ptr<Op> transform_op(std::shared_ptr<const Kind> kind, bool back) {
  return std::make_unique<TransformOp>(std::move(kind), back);
}

}  // namespace trireme::api::preprocessing
