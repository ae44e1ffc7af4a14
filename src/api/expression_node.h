#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trireme/value.h"

namespace trireme::api {

enum class Operation {
  kColumn,
  kLiteral,
  kList,  // only what follows `in`
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

struct ExpressionNode;
using ExpressionPointer = std::shared_ptr<const ExpressionNode>;

// Never written once it is made.
struct ExpressionNode {
  Operation operation = Operation::kLiteral;
  std::string column = {};
  Value literal = {};
  List values = {};  // of kList and kIn
  std::vector<ExpressionPointer> inputs = {};
  int depth = 1;  // so that whoever goes through it knows that the stack is enough
};

// Refuses one that is nested too deep.
base::Result<ExpressionPointer> make_node(Operation operation, std::vector<ExpressionPointer> inputs, List values = {});
ExpressionPointer column_node(std::string name);
ExpressionPointer literal_node(Value value);

base::Result<ExpressionPointer> parse_expression(std::string_view text);
// What parse_expression() makes the same of.
std::string text_of(const ExpressionNode& node);

}  // namespace trireme::api
