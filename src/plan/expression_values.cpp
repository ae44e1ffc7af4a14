#include "plan/expression_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "plan/expression_numbers.h"
#include "plan/letter_case.h"

namespace trireme::plan {
namespace {

Cells bools(std::size_t rows, bool constant) {
  Cells made = cells_of_type({CellKind::kBool}, rows);
  made.constant = constant;
  return made;
}

base::Result<void> expect_bool(const Cells& cells) {
  if (cells.type.kind == CellKind::kBool) return {};
  return base::error("{} is not boolean: compare it, for example x != 0", cells.type.text());
}

// Kleene logic for nulls: a result that does not depend on the null is not null.
Cells joined(bool is_and, const Cells& left, const Cells& right) {
  const bool constant = left.constant && right.constant;
  Cells made = bools(left.constant ? right.size() : left.size(), constant);
  const Whole decides = is_and ? 0 : 1;
  for (std::size_t row = 0; row < made.size(); ++row) {
    const bool decided =
        (left.is_valid(row) && left.whole(row) == decides) || (right.is_valid(row) && right.whole(row) == decides);
    made.valid[row] = decided || (left.is_valid(row) && right.is_valid(row));
    made.wholes[row] = decided ? decides : 1 - decides;
  }
  return made;
}

template <typename T>
bool compares(Operation operation, const T& left, const T& right) {
  switch (operation) {
    case Operation::kEqual: return left == right;
    case Operation::kUnequal: return left != right;
    case Operation::kLess: return left < right;
    case Operation::kLessEqual: return left <= right;
    case Operation::kGreater: return left > right;
    default: return left >= right;
  }
}

bool are_alike(const CellType& left, const CellType& right) {
  if (left.kind == CellKind::kNull || right.kind == CellKind::kNull) return true;
  if (left.kind == CellKind::kOther) return false;
  if (left.is_number() && right.is_number()) return true;
  if (left.is_text() && right.is_text()) return true;
  return left == right;  // of the same unit
}

base::Result<Cells> compared(Operation operation, const Cells& left, const Cells& right) {
  if (!are_alike(left.type, right.type)) {
    return base::error("{} and {} cannot be compared", left.type.text(), right.type.text());
  }
  Cells made = bools(left.constant ? right.size() : left.size(), left.constant && right.constant);
  const bool real = left.type.kind == CellKind::kReal || right.type.kind == CellKind::kReal;
  const bool text = left.type.is_text();
  for (std::size_t row = 0; row < made.size(); ++row) {
    if (!left.is_valid(row) || !right.is_valid(row)) continue;
    made.valid[row] = 1;
    made.wholes[row] = text   ? compares(operation, left.text(row), right.text(row))
                       : real ? compares(operation, left.real(row), right.real(row))
                              : compares(operation, left.whole(row), right.whole(row));
  }
  return made;
}

template <typename T, typename Get>
void find_each(Cells& made, const Cells& cells, std::vector<T> wanted, Get get) {
  std::sort(wanted.begin(), wanted.end());
  for (std::size_t row = 0; row < made.size(); ++row) {
    if (cells.is_valid(row)) made.wholes[row] = std::binary_search(wanted.begin(), wanted.end(), get(row));
  }
}

base::Result<Cells> found(const Cells& cells, const List& values) {
  Cells made = bools(cells.size(), cells.constant);
  bool null = false;
  std::vector<Cells> wanted;
  for (const auto& value : values) {
    Cells one = constant_cells(value);
    null = null || value.is_null();
    if (value.is_null()) continue;
    const bool moment = cells.type.kind == CellKind::kTime && one.type.kind == CellKind::kWhole;
    if (!moment && !are_alike(cells.type, one.type)) {
      return base::error("{} never equals {}", cells.type.text(), one.type.text());
    }
    wanted.push_back(std::move(one));
  }
  const bool real = cells.type.kind == CellKind::kReal ||
                    std::any_of(wanted.begin(), wanted.end(), [](const Cells& each) { return !each.reals.empty(); });
  std::vector<double> reals;
  std::vector<Whole> wholes;
  std::vector<std::string_view> texts;
  for (const auto& each : wanted) {
    if (each.type.is_text()) texts.push_back(each.text(0));
    else if (!real) wholes.push_back(each.whole(0));
    // In the column's precision: 0.1 is in a column of floats.
    else if (!std::isnan(each.real(0)))
      reals.push_back(cells.type.kind == CellKind::kReal && cells.type.bits < 64 ? static_cast<float>(each.real(0))
                                                                                 : each.real(0));
  }
  if (cells.type.is_text()) find_each(made, cells, std::move(texts), [&](std::size_t row) { return cells.text(row); });
  else if (real) find_each(made, cells, std::move(reals), [&](std::size_t row) { return cells.real(row); });
  else if (cells.type.kind != CellKind::kNull && cells.type.kind != CellKind::kOther)
    find_each(made, cells, std::move(wholes), [&](std::size_t row) { return cells.whole(row); });
  for (std::size_t row = 0; row < made.size(); ++row) {
    made.valid[row] = 1;
    if (!cells.is_valid(row)) made.wholes[row] = null;
  }
  return made;
}

Cells is_there(const Cells& cells, bool there) {
  Cells made = bools(cells.size(), cells.constant);
  for (std::size_t row = 0; row < made.size(); ++row) {
    made.valid[row] = 1;
    made.wholes[row] = (cells.valid[row] != 0) == there;
  }
  return made;
}

base::Result<Cells> is_nan(const Cells& cells) {
  if (cells.type.kind != CellKind::kNull && !cells.type.is_number())
    return base::error("{} is not a number", cells.type.text());
  Cells made = bools(cells.size(), cells.constant);
  made.valid = cells.valid;
  for (std::size_t row = 0; row < cells.reals.size(); ++row) made.wholes[row] = std::isnan(cells.reals[row]);
  return made;
}

base::Result<Cells> of_text(Operation operation, const Cells& cells) {
  if (cells.type.kind != CellKind::kText) return base::error("{} is not text", cells.type.text());
  const bool counts = operation == Operation::kLength;
  Cells made = cells_of_type(counts ? CellType{CellKind::kWhole, 32} : cells.type, cells.size());
  made.constant = cells.constant;
  made.valid = cells.valid;
  auto texts = std::make_shared<std::deque<std::string>>();
  const LetterCase letters;
  for (std::size_t row = 0; row < cells.size(); ++row) {
    if (!cells.valid[row]) continue;
    if (counts) {
      // Bytes that start a character.
      made.wholes[row] = std::count_if(cells.texts[row].begin(), cells.texts[row].end(),
                                       [](char sign) { return (sign & 0xc0) != 0x80; });
    } else {
      made.texts[row] = texts->emplace_back(letters.changed(cells.texts[row], operation == Operation::kUpper));
    }
  }
  made.owner = std::move(texts);
  return made;
}

base::Result<Cells> column_of(const std::string& name, const data::Batch& batch) {
  if (const auto column = batch.schema()->find(name)) return cells_of(batch, *column);
  std::vector<std::string> names;
  for (const auto& field : batch.schema()->fields()) names.push_back(field.name);
  return base::error("no column named '{}'{}", name, base::did_you_mean(name, names));
}

base::Result<Cells> applied(const ExpressionNode& node, std::vector<Cells> inputs) {
  const Cells& first = inputs.front();
  switch (node.operation) {
    case Operation::kAnd:
    case Operation::kOr: {
      for (const auto& each : inputs) TRIREME_TRY(expect_bool(each));
      Cells made = joined(node.operation == Operation::kAnd, first, inputs[1]);
      for (std::size_t i = 2; i < inputs.size(); ++i) made = joined(node.operation == Operation::kAnd, made, inputs[i]);
      return made;
    }
    case Operation::kNot: {
      TRIREME_TRY(expect_bool(first));
      Cells made = first;
      for (auto& each : made.wholes) each = each == 0;
      return made;
    }
    case Operation::kIn: return found(first, node.values);
    case Operation::kIsNull: return is_there(first, false);
    case Operation::kIsValid: return is_there(first, true);
    case Operation::kIsNan: return is_nan(first);
    case Operation::kNegate: return negated(first);
    case Operation::kAbs: return absolute(first);
    case Operation::kLength:
    case Operation::kLower:
    case Operation::kUpper: return of_text(node.operation, first);
    default: break;
  }
  if (node.operation >= Operation::kEqual && node.operation <= Operation::kGreaterEqual) {
    return compared(node.operation, first, inputs[1]);
  }
  const auto written = [&](std::size_t i) { return node.inputs[i]->operation == Operation::kLiteral; };
  return calculated(node.operation, {first, written(0)}, {inputs[1], written(1)});
}

}  // namespace

base::Result<Cells> evaluate(const ExpressionNode& node, const data::Batch& batch) {
  if (node.operation == Operation::kColumn) return column_of(node.column, batch);
  if (node.operation == Operation::kLiteral) return constant_cells(node.literal);
  std::vector<Cells> inputs;
  for (const auto& each : node.inputs) {
    TRIREME_ASSIGN(auto cells, evaluate(*each, batch));
    inputs.push_back(std::move(cells));
  }
  auto made = applied(node, std::move(inputs));
  if (!made) return std::move(made).error().wrap(text_of(node));
  return made;
}

}  // namespace trireme::plan
