#include "unified.h"

#include <arrow/array/util.h>
#include <arrow/compute/api_scalar.h>
#include <arrow/compute/cast.h>
#include <arrow/scalar.h>

#include "status.h"

namespace trireme::arrow {
namespace {

using ::arrow::Type;

std::shared_ptr<::arrow::DataType> plain_type(const std::shared_ptr<::arrow::DataType>& type) {
  if (type->id() != Type::DICTIONARY) return type;
  return static_cast<const ::arrow::DictionaryType&>(*type).value_type();
}

::arrow::Result<std::shared_ptr<::arrow::Array>> cast_column(const std::shared_ptr<::arrow::Array>& column,
                                                             const ::arrow::Field& field) {
  if (column->type()->Equals(field.type())) return column;
  auto made = ::arrow::compute::Cast(*column, field.type());
  if (made.ok()) return made;
  const auto& status = made.status();
  return status.WithMessage("column '", field.name(), "': ", column->type()->ToString(), " cannot become ",
                            field.type()->ToString(), ": ", status.message());
}

}  // namespace

std::shared_ptr<::arrow::Schema> decoded(const ::arrow::Schema& schema) {
  std::vector<std::shared_ptr<::arrow::Field>> fields;
  for (const auto& field : schema.fields()) fields.push_back(field->WithType(plain_type(field->type())));
  return ::arrow::schema(std::move(fields), schema.metadata());
}

::arrow::Result<std::shared_ptr<::arrow::RecordBatch>> decoded(const std::shared_ptr<::arrow::RecordBatch>& batch) {
  const auto schema = decoded(*batch->schema());
  if (schema->Equals(*batch->schema())) return batch;
  return conformed(*batch, schema);
}

std::shared_ptr<::arrow::Schema> unified(const std::vector<std::shared_ptr<::arrow::Schema>>& schemas) {
  std::vector<std::shared_ptr<::arrow::Schema>> plain;
  for (const auto& schema : schemas) plain.push_back(decoded(*schema)->RemoveMetadata());
  return check(::arrow::UnifySchemas(plain, ::arrow::Field::MergeOptions::Permissive()));
}

std::shared_ptr<::arrow::Field> unified(const std::shared_ptr<::arrow::Field>& one,
                                        const std::shared_ptr<::arrow::Field>& other) {
  const auto merged =
      one->WithType(plain_type(one->type()))
          ->MergeWith(other->WithType(plain_type(other->type())), ::arrow::Field::MergeOptions::Permissive());
  return merged.ok() ? *merged : nullptr;
}

::arrow::Result<::arrow::Datum> with_plain_zeros(const ::arrow::Datum& values) {
  const auto id = values.type()->id();
  if (id != Type::FLOAT && id != Type::DOUBLE) return values;
  ARROW_ASSIGN_OR_RAISE(const auto zero, ::arrow::MakeScalar(0.0)->CastTo(values.type()));
  return ::arrow::compute::Add(values, ::arrow::Datum(zero));
}

::arrow::Result<std::shared_ptr<::arrow::RecordBatch>> conformed(const ::arrow::RecordBatch& batch,
                                                                 const std::shared_ptr<::arrow::Schema>& schema) {
  std::vector<std::shared_ptr<::arrow::Array>> columns;
  for (const auto& field : schema->fields()) {
    const auto column = batch.GetColumnByName(field->name());
    if (column) {
      ARROW_ASSIGN_OR_RAISE(columns.emplace_back(), cast_column(column, *field));
    } else {
      ARROW_ASSIGN_OR_RAISE(columns.emplace_back(), ::arrow::MakeArrayOfNull(field->type(), batch.num_rows()));
    }
  }
  return ::arrow::RecordBatch::Make(schema, batch.num_rows(), std::move(columns));
}

}  // namespace trireme::arrow
