#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "trireme/export.h"
#include "trireme/value.h"

// Expressions over columns, for Dataset::filter() and with_column(): a string in Python syntax, or built in C++.
//
//   dataset.filter("x > 3 and name == 'a'");
//   dataset.filter(col("x") > 3 && col("name") == "a");
//
// A comparison with a null is null, which no filter keeps. `is None`, is_null() and `in` handle nulls.

namespace trireme {

namespace plan {
struct ExpressionNode;
}

namespace data {

// Types of constant values.
template <typename T>
concept Plain = std::is_arithmetic_v<T> || std::is_convertible_v<T, std::string_view> || std::is_same_v<T, Bytes> ||
    std::is_same_v<T, std::nullptr_t> || std::is_same_v<T, Value>;

// An immutable handle.
class TRIREME_API Expression {
 public:
  explicit Expression(std::shared_ptr<const plan::ExpressionNode> node) : node_(std::move(node)) {}
  // A constant: col("x") > 3.
  template <Plain T>
  Expression(const T& value) : Expression(of(Value(value))) {}

  // Supports comparisons, and/or/not, in, is None, arithmetic, and abs, is_null, is_valid, is_nan, length, lower and
  // upper of columns. Throws ValueError with the unsupported part and its position.
  static Expression parse(std::string_view text);

  Expression is_null() const;
  Expression is_valid() const;
  Expression is_nan() const;
  // Whether the value is in the list. Never null: a null is in a list that contains a null.
  Expression is_in(List values) const;
  Expression abs() const;
  // For strings: length in characters, lower case, upper case.
  Expression length() const;
  Expression lower() const;
  Expression upper() const;
  // Division returns floats, also for integers. Integer overflow of the column type and division by zero are errors.
  Expression power(const Expression& exponent) const;
  Expression floor_divided(const Expression& divisor) const;

  // As a string that parse() accepts.
  std::string text() const;
  const std::shared_ptr<const plan::ExpressionNode>& node() const { return node_; }

 private:
  static Expression of(Value value);

  std::shared_ptr<const plan::ExpressionNode> node_;  // shared by the expressions that contain it
};

TRIREME_API Expression operator==(const Expression& left, const Expression& right);
TRIREME_API Expression operator!=(const Expression& left, const Expression& right);
TRIREME_API Expression operator<(const Expression& left, const Expression& right);
TRIREME_API Expression operator<=(const Expression& left, const Expression& right);
TRIREME_API Expression operator>(const Expression& left, const Expression& right);
TRIREME_API Expression operator>=(const Expression& left, const Expression& right);
TRIREME_API Expression operator+(const Expression& left, const Expression& right);
TRIREME_API Expression operator-(const Expression& left, const Expression& right);
TRIREME_API Expression operator*(const Expression& left, const Expression& right);
TRIREME_API Expression operator/(const Expression& left, const Expression& right);
TRIREME_API Expression operator%(const Expression& left, const Expression& right);
TRIREME_API Expression operator&&(const Expression& left, const Expression& right);
TRIREME_API Expression operator||(const Expression& left, const Expression& right);
TRIREME_API Expression operator!(const Expression& operand);
TRIREME_API Expression operator-(const Expression& operand);

// A column by name.
TRIREME_API Expression col(std::string name);
// A constant.
TRIREME_API Expression lit(Value value);

}  // namespace data
}  // namespace trireme
