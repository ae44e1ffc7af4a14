#include "unified.h"

#include <arrow/array/util.h>
#include <arrow/compute/api_scalar.h>
#include <arrow/compute/cast.h>
#include <arrow/scalar.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "status.h"

namespace trireme::dataset {
namespace {

using ::arrow::Type;

std::shared_ptr<::arrow::DataType> plain_type(const std::shared_ptr<::arrow::DataType>& type) {
  if (type->id() != Type::DICTIONARY) return type;
  return static_cast<const ::arrow::DictionaryType&>(*type).value_type();
}

bool is_text(const ::arrow::DataType& type) {
  return type.id() == Type::STRING || type.id() == Type::LARGE_STRING || type.id() == Type::STRING_VIEW;
}

// Arrow's permissive unification allows these: digits of decimals would be lost, and text would become bytes.
bool is_lossy(const ::arrow::DataType& one, const ::arrow::DataType& other) {
  if (one.id() == Type::NA || other.id() == Type::NA) return false;
  if (is_text(one) != is_text(other)) return true;
  if (::arrow::is_decimal(one.id()) && ::arrow::is_floating(other.id())) return true;
  if (::arrow::is_floating(one.id()) && ::arrow::is_decimal(other.id())) return true;
  if (::arrow::is_list_like(one.id()) && ::arrow::is_list_like(other.id())) {
    return is_lossy(*one.field(0)->type(), *other.field(0)->type());
  }
  if (one.id() != Type::STRUCT || other.id() != Type::STRUCT) return false;
  const auto& fields = static_cast<const ::arrow::StructType&>(one);
  for (const auto& field : other.fields()) {
    const auto known = fields.GetFieldByName(field->name());
    if (known && is_lossy(*known->type(), *field->type())) return true;
  }
  return false;
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
  std::vector<std::shared_ptr<::arrow::Field>> fields;
  for (std::size_t index = 0; index < schemas.size(); ++index) {
    const auto plain = decoded(*schemas[index]);
    for (const auto& field : plain->fields()) {
      const auto known =
          std::find_if(fields.begin(), fields.end(), [&](const auto& each) { return each->name() == field->name(); });
      if (known == fields.end()) {
        fields.push_back(field->RemoveMetadata());
        continue;
      }
      const auto both = unified(*known, field->RemoveMetadata());
      if (!both) {
        throw std::runtime_error("column '" + field->name() + "' is " + field->type()->ToString() + " in dataset " +
                                 std::to_string(index) + " and " + (*known)->type()->ToString() +
                                 " in the ones before; rename, drop or cast it first");
      }
      *known = both;
    }
  }
  return ::arrow::schema(std::move(fields));
}

std::shared_ptr<::arrow::Field> unified(const std::shared_ptr<::arrow::Field>& one,
                                        const std::shared_ptr<::arrow::Field>& other) {
  if (is_lossy(*plain_type(one->type()), *plain_type(other->type()))) return nullptr;
  const auto merged =
      one->WithType(plain_type(one->type()))
          ->MergeWith(other->WithType(plain_type(other->type())), ::arrow::Field::MergeOptions::Permissive());
  return merged.ok() ? *merged : nullptr;
}

::arrow::Result<::arrow::Datum> plain_floats(const ::arrow::Datum& values) {
  const auto id = values.type()->id();
  if (id != Type::FLOAT && id != Type::DOUBLE) return values;
  ARROW_ASSIGN_OR_RAISE(const auto zero, ::arrow::MakeScalar(0.0)->CastTo(values.type()));
  ARROW_ASSIGN_OR_RAISE(const auto nan,
                        ::arrow::MakeScalar(std::numeric_limits<double>::quiet_NaN())->CastTo(values.type()));
  ARROW_ASSIGN_OR_RAISE(const auto zeros, ::arrow::compute::Add(values, ::arrow::Datum(zero)));
  ARROW_ASSIGN_OR_RAISE(const auto is_nan, ::arrow::compute::IsNan(values));
  return ::arrow::compute::IfElse(is_nan, ::arrow::Datum(nan), zeros);
}

::arrow::Result<::arrow::Datum> distances(const ::arrow::Datum& values, const ::arrow::Datum& origin) {
  const auto id = values.type()->id();
  if (id != Type::INT64 && id != Type::UINT64) return values;
  const auto digits = ::arrow::decimal128(20, 0);
  ARROW_ASSIGN_OR_RAISE(const auto all, ::arrow::compute::Cast(values, digits));
  ARROW_ASSIGN_OR_RAISE(const auto from, ::arrow::compute::Cast(origin, digits));
  ARROW_ASSIGN_OR_RAISE(const auto away, ::arrow::compute::Subtract(all, from));
  return ::arrow::compute::Cast(away, ::arrow::float64());
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

}  // namespace trireme::dataset
