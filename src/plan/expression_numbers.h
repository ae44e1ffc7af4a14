#pragma once

#include "base/result.h"
#include "plan/cells.h"
#include "plan/expression_node.h"

// Arithmetic with Arrow's types: the common type of both operands, and literals have the smallest type that
// holds them.

namespace trireme::plan {

struct Operand {
  const Cells& cells;
  bool written;  // a literal of the expression's text
};

base::Result<Cells> calculated(Operation operation, const Operand& left, const Operand& right);
base::Result<Cells> negated(const Cells& cells);
base::Result<Cells> absolute(const Cells& cells);

}  // namespace trireme::plan
