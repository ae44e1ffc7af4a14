#include "plan/expression_conditions.h"

#include <algorithm>
#include <optional>

namespace trireme::plan {
namespace {

using ComparisonKind = DataCondition::Kind;

std::optional<ComparisonKind> kind_of(Operation operation) {
  switch (operation) {
    case Operation::kEqual: return ComparisonKind::kEqual;
    case Operation::kLess: return ComparisonKind::kLess;
    case Operation::kLessEqual: return ComparisonKind::kLessEqual;
    case Operation::kGreater: return ComparisonKind::kGreater;
    case Operation::kGreaterEqual: return ComparisonKind::kGreaterEqual;
    default: return {};
  }
}

// 3 < x is x > 3.
ComparisonKind turned(ComparisonKind kind) {
  switch (kind) {
    case ComparisonKind::kLess: return ComparisonKind::kGreater;
    case ComparisonKind::kLessEqual: return ComparisonKind::kGreaterEqual;
    case ComparisonKind::kGreater: return ComparisonKind::kLess;
    case ComparisonKind::kGreaterEqual: return ComparisonKind::kLessEqual;
    default: return kind;
  }
}

bool is_plain(const Value& value) {
  return value.get_if<std::int64_t>() || value.get_if<double>() || value.get_if<std::string>();
}

void collect(const ExpressionNode& node, std::vector<DataCondition>& found) {
  if (node.operation == Operation::kAnd) {
    for (const auto& each : node.inputs) collect(*each, found);
    return;
  }
  if (node.operation == Operation::kIn) {
    const auto& input = *node.inputs[0];
    if (input.operation != Operation::kColumn || !std::all_of(node.values.begin(), node.values.end(), is_plain)) return;
    found.push_back({input.column, ComparisonKind::kOneOf, node.values});
    return;
  }
  const auto kind = kind_of(node.operation);
  if (!kind) return;
  const auto& left = *node.inputs[0];
  const auto& right = *node.inputs[1];
  if (left.operation == Operation::kColumn && right.operation == Operation::kLiteral && is_plain(right.literal)) {
    found.push_back({left.column, *kind, {right.literal}});
  } else if (right.operation == Operation::kColumn && left.operation == Operation::kLiteral && is_plain(left.literal)) {
    found.push_back({right.column, turned(*kind), {left.literal}});
  }
}

}  // namespace

std::vector<DataCondition> conditions_of(const ExpressionNode& node) {
  std::vector<DataCondition> found;
  collect(node, found);
  return found;
}

}  // namespace trireme::plan
