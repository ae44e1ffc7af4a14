#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "trireme/export.h"
#include "trireme/value.h"

// Expressions over columns, for Dataset::filter() and with_column(): text as Python writes it, or built here.
//
//   dataset.filter("x > 3 and name == 'a'");
//   dataset.filter(col("x") > 3 && col("name") == "a");
//
// Nulls make a comparison null, which no filter keeps; `is None`, is_null() and `in` look at them.

namespace trireme {

namespace api {
struct ExpressionNode;
}

namespace data {

// What is the same in every row.
template <typename T>
concept Plain = std::is_arithmetic_v<T> || std::is_convertible_v<T, std::string_view> || std::is_same_v<T, Bytes> ||
    std::is_same_v<T, std::nullptr_t> || std::is_same_v<T, Value>;

// A handle, never changed.
class TRIREME_API Expression {
 public:
  explicit Expression(std::shared_ptr<const api::ExpressionNode> node) : node_(std::move(node)) {}
  // A value: col("x") > 3.
  template <Plain T>
  Expression(const T& value) : Expression(of(Value(value))) {}

  // Comparisons, and/or/not, in, is None, arithmetic, and abs, is_null, is_valid, is_nan, length, lower and upper of
  // columns. Throws ValueError that says what it does not understand, and where.
  static Expression parse(std::string_view text);

  Expression is_null() const;
  Expression is_valid() const;
  Expression is_nan() const;
  // Whether it is one of these. Never null: a null is in a list that has one.
  Expression is_in(List values) const;
  Expression abs() const;
  // Of text: in characters; and in small and capital letters.
  Expression length() const;
  Expression lower() const;
  Expression upper() const;
  // Division is one of real numbers, also among whole ones. Whole numbers that grow too large for the type of their
  // columns, and a division by zero, are errors.
  Expression power(const Expression& exponent) const;
  Expression floor_divided(const Expression& divisor) const;

  // As text that parse() understands.
  std::string text() const;
  const std::shared_ptr<const api::ExpressionNode>& node() const { return node_; }

 private:
  static Expression of(Value value);

  std::shared_ptr<const api::ExpressionNode> node_;  // shared by the expressions that are made of it
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

// A column, by its name.
TRIREME_API Expression col(std::string name);
// A value that is the same in every row.
TRIREME_API Expression lit(Value value);

}  // namespace data
}  // namespace trireme
