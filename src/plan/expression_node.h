#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trireme/export.h"
#include "trireme/value.h"

namespace trireme::plan {

// The parser and the printer use the order.
enum class Operation {
  kColumn,
  kLiteral,
  kList,  // only after `in`
  kAnd,   // two or more
  kOr,
  kNot,
  kEqual,
  kUnequal,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kNegate,
  kIn,
  kIsNull,
  kIsValid,
  kIsNan,
  kAbs,
  kLength,
  kLower,
  kUpper,
};

// As it is written, for example "<=" or "is_nan"; empty for columns and values.
std::string_view sign_of(Operation operation);

struct ExpressionNode;
using ExpressionPointer = std::shared_ptr<const ExpressionNode>;

// Immutable.
struct ExpressionNode {
  Operation operation = Operation::kLiteral;
  std::string column = {};
  Value literal = {};
  List values = {};  // for kList and kIn
  std::vector<ExpressionPointer> inputs = {};
  int depth = 1;  // limits the recursion of visitors
};

// Rejects nodes that are nested too deep.
base::Result<ExpressionPointer> make_node(Operation operation, std::vector<ExpressionPointer> inputs, List values = {});
ExpressionPointer column_node(std::string name);
ExpressionPointer literal_node(Value value);

base::Result<ExpressionPointer> parse_expression(std::string_view text);
// Text that parse_expression() converts to the same expression.
TRIREME_API std::string text_of(const ExpressionNode& node);

}  // namespace trireme::plan
