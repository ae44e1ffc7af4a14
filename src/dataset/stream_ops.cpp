#include "stream_ops.h"

#include <arrow/array/util.h>
#include <arrow/c/bridge.h>
#include <arrow/compute/api_vector.h>
#include <arrow/compute/cast.h>
#include <arrow/compute/exec.h>

#include <algorithm>
#include <functional>

#include "expressions.h"
#include "file_source.h"
#include "kernels.h"
#include "status.h"
#include "unified.h"

// Operations on the batches of a stream.

namespace trireme::dataset {
namespace {

namespace cp = ::arrow::compute;
using Change = std::function<::arrow::Result<BatchPointer>(const BatchPointer&)>;

// An expression for batches with these columns.
class Evaluator {
 public:
  Evaluator(const data::Expression& expression, const ::arrow::Schema& schema)
      : schema_(decoded(schema)),
        bound_(check(arrow_expression(*expression.node(), *schema_).Bind(*schema_))),
        columns_(columns_of(*expression.node())) {}

  std::shared_ptr<::arrow::DataType> type() const { return bound_.type()->GetSharedPtr(); }

  ::arrow::Result<::arrow::Datum> operator()(const ::arrow::RecordBatch& batch) const {
    // Only the columns that the expression uses: others need not be decoded.
    std::vector<std::shared_ptr<::arrow::Array>> columns;
    for (const auto& field : schema_->fields()) {
      auto column = batch.column(static_cast<int>(columns.size()));
      const bool used = std::find(columns_.begin(), columns_.end(), field->name()) != columns_.end();
      if (!column->type()->Equals(field->type())) {
        ARROW_ASSIGN_OR_RAISE(column, used ? cp::Cast(*column, field->type())
                                           : ::arrow::MakeArrayOfNull(field->type(), batch.num_rows()));
      }
      columns.push_back(std::move(column));
    }
    const auto plain = ::arrow::RecordBatch::Make(schema_, batch.num_rows(), std::move(columns));
    return cp::ExecuteScalarExpression(bound_, cp::ExecBatch(*plain));
  }

 private:
  SchemaPointer schema_;
  cp::Expression bound_;
  std::vector<std::string> columns_;
};

SchemaPointer import_schema(ArrowSchema* schema) {
  load_kernels();
  return check(::arrow::ImportSchema(schema));
}

// Applies a change to every batch; batches without rows are dropped.
void export_changed(const std::string& name, std::shared_ptr<::arrow::RecordBatchReader> reader, SchemaPointer schema,
                    Change change, ArrowArrayStream* out) {
  auto make = [name, reader = std::move(reader), change = std::move(change)]() -> ::arrow::Result<BatchPointer> {
    while (true) {
      ARROW_ASSIGN_OR_RAISE(const auto batch, reader->Next());
      if (!batch) return batch;
      const auto changed = change(batch);
      if (!changed.ok()) return changed.status().WithMessage(name, ": ", changed.status().message());
      if ((*changed)->num_rows() > 0) return changed;
    }
  };
  check(::arrow::ExportRecordBatchReader(std::make_shared<MadeBatches>(std::move(schema), std::move(make)), out));
}

class FilterOp final : public plan::StreamOp {
 public:
  explicit FilterOp(data::Expression keeps) : keeps_(std::move(keeps)) {}

  std::string name() const override { return "filter(" + keeps_.text() + ")"; }
  bool keeps_rows() const override { return false; }
  std::vector<std::string> columns() const override { return columns_of(*keeps_.node()); }

  void schema(ArrowSchema* input, ArrowSchema* out) const override {
    const auto columns = import_schema(input);
    const auto type = Evaluator(keeps_, *columns).type();
    if (type->id() != ::arrow::Type::BOOL && type->id() != ::arrow::Type::NA) {
      throw std::runtime_error("the expression is " + type->ToString() +
                               ", not boolean: compare it, for example x != 0");
    }
    check(::arrow::ExportSchema(*columns, out));
  }

  void apply(ArrowArrayStream* input, ArrowArrayStream* out) const override {
    auto reader = check(::arrow::ImportRecordBatchReader(input));
    auto schema = reader->schema();
    auto evaluator = std::make_shared<Evaluator>(keeps_, *schema);
    Change change = [evaluator](const BatchPointer& batch) -> ::arrow::Result<BatchPointer> {
      ARROW_ASSIGN_OR_RAISE(const auto chosen, (*evaluator)(*batch));
      if (chosen.is_scalar()) {  // the same for all rows
        const auto& scalar = *chosen.scalar();
        const bool all = scalar.is_valid && static_cast<const ::arrow::BooleanScalar&>(scalar).value;
        return all ? batch : batch->Slice(0, 0);
      }
      ARROW_ASSIGN_OR_RAISE(const auto kept, cp::Filter(::arrow::Datum(batch), chosen));
      return kept.record_batch();
    };
    export_changed(name(), std::move(reader), std::move(schema), std::move(change), out);
  }

 private:
  data::Expression keeps_;
};

class WithColumnOp final : public plan::StreamOp {
 public:
  WithColumnOp(std::string column, data::Expression value) : column_(std::move(column)), value_(std::move(value)) {}

  std::string name() const override { return "with_column(" + column_ + "=" + value_.text() + ")"; }
  std::vector<std::string> columns() const override { return columns_of(*value_.node()); }

  void schema(ArrowSchema* input, ArrowSchema* out) const override {
    const auto columns = import_schema(input);
    check(::arrow::ExportSchema(*with_field(*columns, Evaluator(value_, *columns)), out));
  }

  void apply(ArrowArrayStream* input, ArrowArrayStream* out) const override {
    auto reader = check(::arrow::ImportRecordBatchReader(input));
    const auto before = reader->schema();
    auto evaluator = std::make_shared<Evaluator>(value_, *before);
    auto schema = with_field(*before, *evaluator);
    const int index = schema->GetFieldIndex(column_);
    const std::string copied = copied_column();
    Change change = [=](const BatchPointer& batch) -> ::arrow::Result<BatchPointer> {
      auto columns = batch->columns();
      if (index == batch->num_columns()) columns.emplace_back();
      auto& column = columns[static_cast<std::size_t>(index)];
      if (copied.empty()) {
        ARROW_ASSIGN_OR_RAISE(const auto value, (*evaluator)(*batch));
        ARROW_ASSIGN_OR_RAISE(column, value.is_scalar()
                                          ? ::arrow::MakeArrayFromScalar(*value.scalar(), batch->num_rows())
                                          : ::arrow::Result<std::shared_ptr<::arrow::Array>>(value.make_array()));
      } else {
        column = batch->GetColumnByName(copied);
      }
      return ::arrow::RecordBatch::Make(schema, batch->num_rows(), std::move(columns));
    };
    export_changed(name(), std::move(reader), schema, std::move(change), out);
  }

 private:
  // A column of any type, unchanged; empty for other expressions.
  std::string copied_column() const {
    const auto& node = *value_.node();
    return node.operation == plan::Operation::kColumn ? node.column : "";
  }

  SchemaPointer with_field(const ::arrow::Schema& schema, const Evaluator& evaluator) const {
    const std::string copied = copied_column();
    const auto field =
        copied.empty() ? ::arrow::field(column_, evaluator.type()) : schema.GetFieldByName(copied)->WithName(column_);
    const int index = schema.GetFieldIndex(column_);
    return check(index < 0 ? schema.AddField(schema.num_fields(), field) : schema.SetField(index, field));
  }

  std::string column_;
  data::Expression value_;
};

class ConformOp final : public plan::StreamOp {
 public:
  explicit ConformOp(SchemaPointer schema) : schema_(std::move(schema)) {}

  std::string name() const override { return "cast"; }

  void schema(ArrowSchema* input, ArrowSchema* out) const override {
    input->release(input);
    check(::arrow::ExportSchema(*schema_, out));
  }

  void apply(ArrowArrayStream* input, ArrowArrayStream* out) const override {
    load_kernels();
    auto reader = check(::arrow::ImportRecordBatchReader(input));
    export_changed(
        name(), std::move(reader), schema_,
        [schema = schema_](const BatchPointer& batch) { return conformed(*batch, schema); }, out);
  }

 private:
  SchemaPointer schema_;
};

}  // namespace

std::shared_ptr<const plan::StreamOp> filter_op(const data::Expression& keeps) {
  return std::make_shared<FilterOp>(keeps);
}

std::shared_ptr<const plan::StreamOp> with_column_op(const std::string& column, const data::Expression& value) {
  return std::make_shared<WithColumnOp>(column, value);
}

std::shared_ptr<const plan::StreamOp> conform_op(ArrowSchema* schema) {
  return std::make_shared<ConformOp>(import_schema(schema));
}

}  // namespace trireme::dataset
