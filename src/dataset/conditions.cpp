#include "conditions.h"

#include <arrow/compute/cast.h>
#include <arrow/scalar.h>

#include <cmath>

namespace trireme::dataset {
namespace {

namespace cp = ::arrow::compute;
using Kind = DataCondition::Kind;
using ScalarPointer = std::shared_ptr<::arrow::Scalar>;

ScalarPointer real_scalar(double value, const ::arrow::DataType& type) {
  if (!std::isfinite(value)) return nullptr;
  if (type.id() == ::arrow::Type::DOUBLE) return ::arrow::MakeScalar(value);
  const auto single = static_cast<float>(value);
  return static_cast<double>(single) == value ? ::arrow::MakeScalar(single) : nullptr;
}

// The value in the column's type, if it can be represented exactly: a comparison after rounding could drop matching
// rows.
ScalarPointer scalar_of(const Value& value, const std::shared_ptr<::arrow::DataType>& type) {
  const auto* whole = value.get_if<std::int64_t>();
  if (::arrow::is_integer(type->id())) return whole ? whole_scalar(*whole, type) : nullptr;
  if (type->id() == ::arrow::Type::DOUBLE || type->id() == ::arrow::Type::FLOAT) {
    const auto* real = value.get_if<double>();
    if (real) return real_scalar(*real, *type);
    constexpr std::int64_t kExact = std::int64_t{1} << 53;
    return whole && std::abs(*whole) < kExact ? real_scalar(static_cast<double>(*whole), *type) : nullptr;
  }
  const auto* text = value.get_if<std::string>();
  if (text && type->id() == ::arrow::Type::STRING) return std::make_shared<::arrow::StringScalar>(*text);
  if (text && type->id() == ::arrow::Type::LARGE_STRING) return std::make_shared<::arrow::LargeStringScalar>(*text);
  return nullptr;
}

cp::Expression compared(Kind kind, cp::Expression column, cp::Expression value) {
  switch (kind) {
    case Kind::kLess: return cp::less(std::move(column), std::move(value));
    case Kind::kLessEqual: return cp::less_equal(std::move(column), std::move(value));
    case Kind::kGreater: return cp::greater(std::move(column), std::move(value));
    case Kind::kGreaterEqual: return cp::greater_equal(std::move(column), std::move(value));
    case Kind::kEqual:
    case Kind::kOneOf: break;
  }
  return cp::equal(std::move(column), std::move(value));
}

std::optional<cp::Expression> expression_of(const DataCondition& condition, const ::arrow::Schema& schema) {
  const auto field = schema.GetFieldByName(condition.column);
  if (!field || condition.values.empty()) return {};
  std::vector<cp::Expression> any;
  for (const auto& value : condition.values) {
    const auto scalar = scalar_of(value, field->type());
    if (!scalar) return {};
    any.push_back(compared(condition.kind, cp::field_ref(condition.column), cp::literal(scalar)));
  }
  return cp::or_(any);
}

}  // namespace

ScalarPointer whole_scalar(std::int64_t value, const std::shared_ptr<::arrow::DataType>& type) {
  const auto cast = cp::Cast(::arrow::MakeScalar(value), type, cp::CastOptions::Safe());
  return cast.ok() ? cast->scalar() : nullptr;
}

std::optional<cp::Expression> expression_of(const std::vector<DataCondition>& conditions,
                                            const ::arrow::Schema& schema) {
  std::vector<cp::Expression> all;
  for (const auto& condition : conditions) {
    if (auto one = expression_of(condition, schema)) all.push_back(*std::move(one));
  }
  if (all.empty()) return {};
  return cp::and_(all);
}

}  // namespace trireme::dataset
