#include <fmt/format.h>

#include "base/text.h"
#include "plan/expression_values.h"
#include "plan/selection.h"

// filter() and with_column() with an expression.

namespace trireme::plan {
namespace {

base::Result<Cells> evaluated(const data::Expression& expression, const data::Batch& batch) {
  auto cells = evaluate(*expression.node(), batch);
  if (cells) return cells;
  std::vector<std::string> columns;
  for (const auto& field : batch.schema()->fields()) {
    columns.push_back(fmt::format("{}: {}", field.name, field.type.text()));
  }
  return base::error("{}. The columns are {}", cells.error().message(), base::join(columns, ", "));
}

class ExpressionFilter final : public Selection {
 public:
  explicit ExpressionFilter(data::Expression keeps) : keeps_(std::move(keeps)) {}
  std::string name() const override { return fmt::format("filter({})", keeps_.text()); }

  // Evaluated without rows to report errors of the columns before any row is read.
  base::Result<std::shared_ptr<const data::Schema>> learn(const data::Batch& example) override {
    TRIREME_TRY(choose(data::Batch::empty(example.schema()), {}));
    return example.schema();
  }

 private:
  base::Result<std::vector<bool>> choose(const data::Batch& batch, Where) const override {
    TRIREME_ASSIGN(const auto cells, evaluated(keeps_, batch));
    if (cells.type.kind != CellKind::kBool) {
      return base::error("the expression is {}, not boolean: compare it, for example x != 0", cells.type.text());
    }
    std::vector<bool> chosen(static_cast<std::size_t>(batch.rows()));
    for (std::size_t row = 0; row < chosen.size(); ++row) chosen[row] = cells.is_valid(row) && cells.whole(row) != 0;
    return chosen;
  }

  data::Expression keeps_;
};

class WithColumn final : public Op {
 public:
  WithColumn(std::string column, data::Expression value) : column_(std::move(column)), value_(std::move(value)) {}
  std::string name() const override { return fmt::format("with_column({}={})", column_, value_.text()); }

  base::Result<std::shared_ptr<const data::Schema>> learn(const data::Batch& example) override {
    TRIREME_ASSIGN(auto record, changed(data::Batch::empty(example.schema())));
    return taken_schema(std::move(record));
  }

  base::Result<Record> apply(const data::Batch& batch, Where) override { return changed(batch); }

 private:
  base::Result<Record> changed(const data::Batch& batch) const {
    std::vector<OwnedSchema> schemas(1);
    std::vector<OwnedArray> arrays(1);
    TRIREME_ASSIGN(const auto cells, evaluated(value_, batch));
    const auto& node = *value_.node();
    if (node.operation == Operation::kColumn) {  // of any type, unchanged
      Record whole = exported(batch);
      const std::size_t column = *batch.schema()->find(node.column);
      schemas[0] = renamed(OwnedSchema(*whole.schema->children[column]), column_);
      arrays[0] = OwnedArray(*whole.array->children[column]);
      whole.schema->children[column]->release = nullptr;
      whole.array->children[column]->release = nullptr;
    } else {
      to_arrow(cells, static_cast<std::size_t>(batch.rows()), column_, schemas[0], arrays[0]);
    }
    return with_columns(batch, record_of(std::move(schemas), std::move(arrays), batch.rows()));
  }

  std::string column_;
  data::Expression value_;
};

}  // namespace

std::unique_ptr<Op> filter_op(data::Expression keeps) { return std::make_unique<ExpressionFilter>(std::move(keeps)); }

std::unique_ptr<Op> with_column_op(std::string column, data::Expression value) {
  return std::make_unique<WithColumn>(std::move(column), std::move(value));
}

}  // namespace trireme::plan
