#include "api/preprocessors/transform_op.h"

namespace trireme::api::preprocessing {
namespace {

class TransformOp final : public Op {
 public:
  TransformOp(std::shared_ptr<const PreprocessorImpl> impl, bool back) : impl_(std::move(impl)), back_(back) {}

  std::string name() const override {
    return fmt::format("{}.{}()", impl_->name(), back_ ? "inverse_transform" : "transform");
  }

  bool is_function() const override { return !impl_->function_argument().empty(); }

  // An empty batch is enough: the output columns depend only on the types.
  base::Result<std::shared_ptr<const data::Schema>> learn(const data::Batch& example) override {
    TRIREME_ASSIGN(auto record, changed(example));
    ArrowSchema c_schema = record.schema.give();
    return data::Schema::take(c_schema);
  }

  base::Result<Record> apply(const data::Batch& batch, Where) override { return changed(batch); }

 private:
  base::Result<Record> changed(const data::Batch& batch) const {
    Table table = Table::of(batch);
    TRIREME_ASSIGN(auto changes, back_ ? impl_->change_back(table) : impl_->change(table));
    table.apply(std::move(changes));
    return std::move(table).record();
  }

  std::shared_ptr<const PreprocessorImpl> impl_;  // shared with the preprocessor
  bool back_;
};

}  // namespace

std::unique_ptr<Op> transform_op(std::shared_ptr<const PreprocessorImpl> impl, bool back) {
  return std::make_unique<TransformOp>(std::move(impl), back);
}

}  // namespace trireme::api::preprocessing
