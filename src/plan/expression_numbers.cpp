#include "plan/expression_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace trireme::plan {
namespace {

Whole least_of(const CellType& type) { return type.is_signed ? -(Whole{1} << (type.bits - 1)) : Whole{0}; }
Whole most_of(const CellType& type) { return (Whole{1} << (type.is_signed ? type.bits - 1 : type.bits)) - 1; }
bool holds(const CellType& type, Whole value) { return value >= least_of(type) && value <= most_of(type); }

// Truncated to this number of bits.
Whole wrapped(const CellType& type, Whole value) {
  const Whole range = Whole{1} << type.bits;
  Whole rest = value % range;
  if (rest < 0) rest += range;
  return rest > most_of(type) ? rest - range : rest;
}

CellType smallest(const Operand& operand) {
  CellType type = operand.cells.type;
  if (!operand.written || !operand.cells.is_valid(0)) return type;
  if (type.kind == CellKind::kWhole) {
    for (type.bits = 8; !holds(type, operand.cells.whole(0));) type.bits *= 2;
  }
  if (type.kind == CellKind::kReal) {
    const double value = operand.cells.real(0);
    if (!std::isfinite(value) || static_cast<double>(static_cast<float>(value)) == value) type.bits = 32;
  }
  return type;
}

CellType whole_type(const CellType& left, const CellType& right) {
  CellType type = left;
  type.bits = std::max(left.bits, right.bits);
  if (left.is_signed == right.is_signed) return type;
  const int unsigned_bits = left.is_signed ? right.bits : left.bits;
  const int signed_bits = left.is_signed ? left.bits : right.bits;
  type.bits = signed_bits > unsigned_bits ? signed_bits : std::min(unsigned_bits * 2, 64);
  type.is_signed = true;
  return type;
}

CellType real_type(const Operand& left, const Operand& right, const CellType& a, const CellType& b) {
  CellType type{CellKind::kReal, 32};
  for (const auto* each : {&a, &b}) {
    if (each->kind == CellKind::kReal && each->bits == 64) type.bits = 64;
  }
  // A column of integers with a literal: a float would lose digits.
  const auto is_wide = [](const CellType& each) { return each.kind == CellKind::kWhole && each.bits >= 32; };
  if ((left.written && is_wide(b)) || (right.written && is_wide(a))) type.bits = 64;
  return type;
}

base::Result<CellType> common_type(const Operand& left, const Operand& right) {
  const auto& types = {left.cells.type, right.cells.type};
  for (const auto& type : types) {
    if (type.kind != CellKind::kNull && !type.is_number()) {
      return base::error("{} is not a number", type.text());
    }
  }
  if (left.cells.type == right.cells.type) return left.cells.type;
  const CellType a = smallest(left);
  const CellType b = smallest(right);
  if (a.kind == CellKind::kNull) return b;
  if (b.kind == CellKind::kNull) return a;
  return a.kind == CellKind::kWhole && b.kind == CellKind::kWhole ? whole_type(a, b) : real_type(left, right, a, b);
}

base::Result<Whole> whole_power(const CellType& type, Whole base, Whole exponent) {
  if (exponent < 0) return base::error("integers have no negative powers: use 2.0 ** x, or x * 1.0");
  Whole result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = wrapped(type, result * base);
    base = wrapped(type, base * base);
  }
  return result;
}

base::Result<Whole> whole_result(Operation operation, const CellType& type, Whole left, Whole right) {
  if (operation == Operation::kPower) return whole_power(type, wrapped(type, left), right);
  const Whole result = operation == Operation::kAdd        ? left + right
                       : operation == Operation::kSubtract ? left - right
                                                           : left * right;
  if (holds(type, result)) return result;
  const char* sign = operation == Operation::kAdd ? "+" : operation == Operation::kSubtract ? "-" : "*";
  return base::error("{} {} {} does not fit into {}", fmt::format("{}", static_cast<double>(left)), sign,
                     static_cast<double>(right), type.text());
}

base::Result<double> real_result(Operation operation, double left, double right) {
  const bool divides =
      operation == Operation::kDivide || operation == Operation::kFloorDivide || operation == Operation::kModulo;
  if (divides && right == 0) return base::error("{} is divided by zero: use filter(\"... != 0\") first", left);
  switch (operation) {
    case Operation::kAdd: return left + right;
    case Operation::kSubtract: return left - right;
    case Operation::kMultiply: return left * right;
    case Operation::kDivide: return left / right;
    case Operation::kFloorDivide: return std::floor(left / right);
    case Operation::kModulo: return left - std::floor(left / right) * right;
    default: return std::pow(left, right);
  }
}

}  // namespace

base::Result<Cells> calculated(Operation operation, const Operand& left, const Operand& right) {
  TRIREME_ASSIGN(CellType type, common_type(left, right));
  // As in Python, also for integers.
  const bool divides =
      operation == Operation::kDivide || operation == Operation::kFloorDivide || operation == Operation::kModulo;
  if (divides && type.kind != CellKind::kNull) type = {CellKind::kReal, 64};
  const bool constant = left.cells.constant && right.cells.constant;
  const std::size_t rows = left.cells.constant ? right.cells.size() : left.cells.size();
  Cells made = cells_of_type(type, rows);
  made.constant = constant;
  for (std::size_t row = 0; row < rows; ++row) {
    if (!left.cells.is_valid(row) || !right.cells.is_valid(row)) continue;
    made.valid[row] = 1;
    if (type.kind == CellKind::kWhole) {
      TRIREME_ASSIGN(made.wholes[row], whole_result(operation, type, left.cells.whole(row), right.cells.whole(row)));
      continue;
    }
    TRIREME_ASSIGN(const double real, real_result(operation, left.cells.real(row), right.cells.real(row)));
    made.reals[row] = type.bits == 64 ? real : static_cast<float>(real);
  }
  return made;
}

base::Result<Cells> negated(const Cells& cells) {
  if (cells.type.kind != CellKind::kNull && !cells.type.is_number())
    return base::error("{} is not a number", cells.type.text());
  Cells made = cells;
  for (auto& each : made.wholes) each = wrapped(cells.type, -each);
  for (auto& each : made.reals) each = -each;
  return made;
}

base::Result<Cells> absolute(const Cells& cells) {
  if (cells.type.kind != CellKind::kNull && !cells.type.is_number())
    return base::error("{} is not a number", cells.type.text());
  Cells made = cells;
  for (auto& each : made.wholes) each = wrapped(cells.type, each < 0 ? -each : each);
  for (auto& each : made.reals) each = std::fabs(each);
  return made;
}

}  // namespace trireme::plan
