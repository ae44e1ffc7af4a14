#include "plan/expression_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "plan/expression_tokens.h"
#include "trireme/expression.h"

namespace trireme {
namespace plan {
namespace {

constexpr int kMostDepth = 100;

std::string quoted(std::string_view text, bool bytes) {
  std::string shown = bytes ? "b'" : "'";
  for (const char sign : text) {
    const auto code = static_cast<unsigned char>(sign);
    if (sign == '\'' || sign == '\\') shown += fmt::format("\\{}", sign);
    else if (code < 0x20 || code == 0x7f || (bytes && code >= 0x80)) shown += fmt::format("\\x{:02x}", code);
    else shown += sign;
  }
  return shown + "'";
}

std::string number(double value) {
  if (std::isinf(value)) return value > 0 ? "1e999" : "-1e999";
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string literal_text(const Value& value) {
  if (value.is_null()) return "None";
  if (const auto* flag = value.get_if<bool>()) return *flag ? "True" : "False";
  if (const auto* whole = value.get_if<std::int64_t>()) return fmt::format("{}", *whole);
  if (const auto* real = value.get_if<double>()) return number(*real);
  if (const auto* text = value.get_if<std::string>()) return quoted(*text, false);
  if (const auto* bytes = value.get_if<Bytes>()) return quoted(bytes->data, true);
  return fmt::format("<{}>", value.type_name());
}

std::string list_text(const List& values) {
  std::string text = "[";
  for (const auto& each : values) text += (text.size() > 1 ? ", " : "") + literal_text(each);
  return text + "]";
}

constexpr std::array<std::string_view, 28> kSigns{
    "",  "",  "",   "and", "or", "not", "==", "!=",      "<",        "<=",     ">",   ">=",     "+",     "-",
    "*", "/", "//", "%",   "**", "-",   "in", "is_null", "is_valid", "is_nan", "abs", "length", "lower", "upper"};

std::string inner(const ExpressionNode& node) {
  const bool plain = node.operation == Operation::kColumn || node.operation >= Operation::kIsNull ||
                     (node.operation == Operation::kLiteral && !node.literal.is_number());
  return plain ? text_of(node) : "(" + text_of(node) + ")";
}

}  // namespace

base::Result<ExpressionPointer> make_node(Operation operation, std::vector<ExpressionPointer> inputs, List values) {
  int depth = 0;
  std::vector<ExpressionPointer> flat;
  for (auto& input : inputs) {
    // `a or b or c ...` may be long; as a list it is not deep.
    const bool joined = operation == Operation::kAnd || operation == Operation::kOr;
    if (joined && flat.empty() && input->operation == operation) {
      flat = input->inputs;
      depth = input->depth - 1;
    } else {
      depth = std::max(depth, input->depth);
      flat.push_back(std::move(input));
    }
  }
  if (depth >= kMostDepth) return base::error("it is nested more than {} deep; filter in two steps", kMostDepth);
  ExpressionNode node{operation, {}, {}, std::move(values), std::move(flat), depth + 1};
  return std::make_shared<const ExpressionNode>(std::move(node));
}

ExpressionPointer column_node(std::string name) {
  return std::make_shared<const ExpressionNode>(ExpressionNode{Operation::kColumn, std::move(name)});
}

ExpressionPointer literal_node(Value value) {
  return std::make_shared<const ExpressionNode>(ExpressionNode{Operation::kLiteral, {}, std::move(value)});
}

std::string_view sign_of(Operation operation) { return kSigns[static_cast<std::size_t>(operation)]; }

std::string text_of(const ExpressionNode& node) {
  const auto sign = sign_of(node.operation);
  switch (node.operation) {
    case Operation::kColumn:
      return is_name(node.column) ? node.column : fmt::format("col({})", quoted(node.column, false));
    case Operation::kLiteral: return literal_text(node.literal);
    case Operation::kList: return list_text(node.values);
    case Operation::kNot: return "not " + inner(*node.inputs[0]);
    case Operation::kNegate: return "-" + inner(*node.inputs[0]);
    case Operation::kIn: return fmt::format("{} in {}", inner(*node.inputs[0]), list_text(node.values));
    default: break;
  }
  if (node.operation >= Operation::kIsNull) return fmt::format("{}({})", sign, text_of(*node.inputs[0]));
  std::string text = inner(*node.inputs[0]);
  for (std::size_t i = 1; i < node.inputs.size(); ++i) text += fmt::format(" {} {}", sign, inner(*node.inputs[i]));
  return text;
}

}  // namespace plan

namespace data {
namespace {

using plan::Operation;

Expression made(Operation operation, std::vector<plan::ExpressionPointer> inputs, List values = {}) {
  auto node = plan::make_node(operation, std::move(inputs), std::move(values));
  if (!node) throw ValueError("invalid expression: " + node.error().message());
  return Expression(*std::move(node));
}

bool is_none(const Expression& expression) {
  return expression.node()->operation == Operation::kLiteral && expression.node()->literal.is_null();
}

bool is_plain(const Value& value) { return !value.get_if<List>() && !value.get_if<Dict>() && !value.get_if<Tensor>(); }

Value checked(Value value) {
  if (is_plain(value)) return value;
  throw ValueError(fmt::format("an expression cannot hold a value of type {}: use a number, text, bytes or null",
                               value.type_name()));
}

}  // namespace

Expression Expression::of(Value value) { return Expression(plan::literal_node(checked(std::move(value)))); }

Expression Expression::parse(std::string_view text) {
  auto node = plan::parse_expression(text);
  if (!node) throw ValueError(node.error().message());
  return Expression(*std::move(node));
}

std::string Expression::text() const { return plan::text_of(*node_); }

Expression Expression::is_null() const { return made(Operation::kIsNull, {node_}); }
Expression Expression::is_valid() const { return made(Operation::kIsValid, {node_}); }
Expression Expression::is_nan() const { return made(Operation::kIsNan, {node_}); }
Expression Expression::abs() const { return made(Operation::kAbs, {node_}); }
Expression Expression::length() const { return made(Operation::kLength, {node_}); }
Expression Expression::lower() const { return made(Operation::kLower, {node_}); }
Expression Expression::upper() const { return made(Operation::kUpper, {node_}); }
Expression Expression::power(const Expression& exponent) const {
  return made(Operation::kPower, {node_, exponent.node_});
}
Expression Expression::floor_divided(const Expression& divisor) const {
  return made(Operation::kFloorDivide, {node_, divisor.node_});
}

Expression Expression::is_in(List values) const {
  for (auto& each : values) each = checked(std::move(each));
  return made(Operation::kIn, {node_}, std::move(values));
}

// As in the text: == None tests for null.
Expression operator==(const Expression& left, const Expression& right) {
  return is_none(right) ? left.is_null() : made(Operation::kEqual, {left.node(), right.node()});
}
Expression operator!=(const Expression& left, const Expression& right) {
  return is_none(right) ? left.is_valid() : made(Operation::kUnequal, {left.node(), right.node()});
}
Expression operator<(const Expression& left, const Expression& right) {
  return made(Operation::kLess, {left.node(), right.node()});
}
Expression operator<=(const Expression& left, const Expression& right) {
  return made(Operation::kLessEqual, {left.node(), right.node()});
}
Expression operator>(const Expression& left, const Expression& right) {
  return made(Operation::kGreater, {left.node(), right.node()});
}
Expression operator>=(const Expression& left, const Expression& right) {
  return made(Operation::kGreaterEqual, {left.node(), right.node()});
}
Expression operator+(const Expression& left, const Expression& right) {
  return made(Operation::kAdd, {left.node(), right.node()});
}
Expression operator-(const Expression& left, const Expression& right) {
  return made(Operation::kSubtract, {left.node(), right.node()});
}
Expression operator*(const Expression& left, const Expression& right) {
  return made(Operation::kMultiply, {left.node(), right.node()});
}
Expression operator/(const Expression& left, const Expression& right) {
  return made(Operation::kDivide, {left.node(), right.node()});
}
Expression operator%(const Expression& left, const Expression& right) {
  return made(Operation::kModulo, {left.node(), right.node()});
}
Expression operator&&(const Expression& left, const Expression& right) {
  return made(Operation::kAnd, {left.node(), right.node()});
}
Expression operator||(const Expression& left, const Expression& right) {
  return made(Operation::kOr, {left.node(), right.node()});
}
Expression operator!(const Expression& operand) { return made(Operation::kNot, {operand.node()}); }
Expression operator-(const Expression& operand) { return made(Operation::kNegate, {operand.node()}); }

Expression col(std::string name) { return Expression(plan::column_node(std::move(name))); }
Expression lit(Value value) { return Expression(std::move(value)); }

}  // namespace data
}  // namespace trireme
