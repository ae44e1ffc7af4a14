#include "expressions.h"

#include <arrow/array/builder_base.h>
#include <arrow/compute/api_scalar.h>
#include <arrow/compute/cast.h>
#include <arrow/scalar.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "conditions.h"
#include "status.h"

namespace trireme::dataset {
namespace {

namespace cp = ::arrow::compute;
using plan::ExpressionNode;
using plan::Operation;
using Expressions = std::vector<cp::Expression>;
using ScalarPointer = std::shared_ptr<::arrow::Scalar>;
using TypePointer = std::shared_ptr<::arrow::DataType>;

ScalarPointer literal_scalar(const Value& value) {
  if (const auto* flag = value.get_if<bool>()) return ::arrow::MakeScalar(*flag);
  if (const auto* whole = value.get_if<std::int64_t>()) return ::arrow::MakeScalar(*whole);
  if (const auto* real = value.get_if<double>()) return ::arrow::MakeScalar(*real);
  if (const auto* text = value.get_if<std::string>()) return std::make_shared<::arrow::StringScalar>(*text);
  if (const auto* bytes = value.get_if<Bytes>()) return std::make_shared<::arrow::BinaryScalar>(bytes->data);
  return ::arrow::MakeNullScalar(::arrow::null());
}

// The value as a column of the type holds it; nothing if no row can equal it.
ScalarPointer wanted_scalar(const Value& value, const TypePointer& type) {
  const auto* real = value.get_if<double>();
  if (real && std::isnan(*real)) return nullptr;  // equals nothing
  const auto scalar = literal_scalar(value);
  if (real && ::arrow::is_integer(type->id())) {
    if (*real != std::floor(*real) || std::fabs(*real) >= 0x1p63) return nullptr;
    return whole_scalar(static_cast<std::int64_t>(*real), type);
  }
  const bool number = real || value.get_if<std::int64_t>();
  const bool text = value.get_if<std::string>() || value.get_if<Bytes>();
  const bool alike = (number && (::arrow::is_numeric(type->id()) || ::arrow::is_decimal(type->id()) ||
                                 ::arrow::is_temporal(type->id()))) ||
                     (text && (::arrow::is_base_binary_like(type->id()) || ::arrow::is_temporal(type->id()))) ||
                     (value.get_if<bool>() && type->id() == ::arrow::Type::BOOL);
  if (!alike) throw std::runtime_error(type->ToString() + " never equals " + scalar->type->ToString());
  const auto* whole = value.get_if<std::int64_t>();
  if (whole && ::arrow::is_integer(type->id())) return whole_scalar(*whole, type);
  auto cast = scalar->CastTo(type);
  if (cast.ok()) return *cast;
  // Dates are stored in 32 bits.
  const auto narrow = scalar->CastTo(::arrow::int32());
  cast = narrow.ok() ? (*narrow)->CastTo(type) : cast;
  return check(std::move(cast));
}

// `in`: NaN equals nothing, and 0.0 equals -0.0, as in comparisons. Arrow compares the bits of floats.
cp::Expression in_list(cp::Expression input, const List& values, const ::arrow::Schema& schema) {
  const auto type = check(input.Bind(schema)).type()->GetSharedPtr();
  std::unique_ptr<::arrow::ArrayBuilder> builder;
  check(::arrow::MakeBuilder(::arrow::default_memory_pool(), type, &builder));
  for (const auto& value : values) {
    if (value.is_null()) {
      check(builder->AppendNull());
      continue;
    }
    if (type->id() == ::arrow::Type::NA) continue;
    const auto scalar = wanted_scalar(value, type);
    if (!scalar) continue;
    check(builder->AppendScalar(*scalar));
    const bool zero = value.is_number() && value.as_double() == 0;
    if (!zero || !::arrow::is_floating(type->id())) continue;
    for (const double each : {0.0, -0.0}) {
      check(builder->AppendScalar(*check(::arrow::MakeScalar(each)->CastTo(type))));
    }
  }
  return cp::call("is_in", {std::move(input)},
                  cp::SetLookupOptions(check(builder->Finish()), cp::SetLookupOptions::MATCH));
}

// A balanced tree: `a or b or c ...` may have thousands of parts, and Arrow's visitors recurse.
cp::Expression balanced(const char* function, Expressions parts) {
  while (parts.size() > 1) {
    Expressions halves;
    for (std::size_t i = 0; i + 1 < parts.size(); i += 2)
      halves.push_back(cp::call(function, {parts[i], parts[i + 1]}));
    if (parts.size() % 2 == 1) halves.push_back(std::move(parts.back()));
    parts = std::move(halves);
  }
  return std::move(parts.front());
}

// As in Python, division returns floats, also for integers.
cp::Expression divided(const Expressions& inputs) {
  auto left = cp::call("cast", {inputs[0]}, cp::CastOptions::Safe(::arrow::float64()));
  return cp::call("divide_checked", {std::move(left), inputs[1]});
}

const char* function_of(Operation operation) {
  switch (operation) {
    case Operation::kAnd: return "and_kleene";
    case Operation::kOr: return "or_kleene";
    case Operation::kNot: return "invert";
    case Operation::kEqual: return "equal";
    case Operation::kUnequal: return "not_equal";
    case Operation::kLess: return "less";
    case Operation::kLessEqual: return "less_equal";
    case Operation::kGreater: return "greater";
    case Operation::kGreaterEqual: return "greater_equal";
    case Operation::kAdd: return "add_checked";
    case Operation::kSubtract: return "subtract_checked";
    case Operation::kMultiply: return "multiply_checked";
    case Operation::kPower: return "power";
    case Operation::kNegate: return "negate";
    case Operation::kIsValid: return "is_valid";
    case Operation::kIsNan: return "is_nan";
    case Operation::kAbs: return "abs";
    case Operation::kLength: return "utf8_length";
    case Operation::kLower: return "utf8_lower";
    case Operation::kUpper: return "utf8_upper";
    default: throw std::runtime_error("an operation that Arrow does not have");
  }
}

cp::Expression called(const ExpressionNode& node, Expressions inputs, const ::arrow::Schema& schema) {
  switch (node.operation) {
    case Operation::kAnd:
    case Operation::kOr: return balanced(function_of(node.operation), std::move(inputs));
    case Operation::kIn: return in_list(std::move(inputs.front()), node.values, schema);
    case Operation::kIsNull: return cp::is_null(std::move(inputs.front()));
    case Operation::kDivide: return divided(inputs);
    case Operation::kFloorDivide: return cp::call("floor", {divided(inputs)});
    case Operation::kModulo: {
      auto multiple = cp::call("multiply_checked", {cp::call("floor", {divided(inputs)}), inputs[1]});
      return cp::call("subtract_checked", {inputs[0], std::move(multiple)});
    }
    default: return cp::call(function_of(node.operation), std::move(inputs));
  }
}

void collect(const ExpressionNode& node, std::vector<std::string>& columns) {
  if (node.operation == Operation::kColumn) columns.push_back(node.column);
  for (const auto& each : node.inputs) collect(*each, columns);
}

}  // namespace

cp::Expression arrow_expression(const ExpressionNode& node, const ::arrow::Schema& schema) {
  if (node.operation == Operation::kColumn) return cp::field_ref(node.column);
  if (node.operation == Operation::kLiteral) return cp::literal(literal_scalar(node.literal));
  Expressions inputs;
  for (const auto& each : node.inputs) inputs.push_back(arrow_expression(*each, schema));
  return called(node, std::move(inputs), schema);
}

std::vector<std::string> columns_of(const ExpressionNode& node) {
  std::vector<std::string> columns;
  collect(node, columns);
  return columns;
}

}  // namespace trireme::dataset
