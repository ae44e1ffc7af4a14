#pragma once

#include "api/dataset_cells.h"
#include "api/expression_node.h"
#include "base/result.h"

// Arithmetic with Arrow's types: of the same width where both are alike, the larger one otherwise, and numbers that are
// written in the expression take the smallest type that holds them.

namespace trireme::api {

struct Operand {
  const Cells& cells;
  bool written;  // a value of the expression's text
};

base::Result<Cells> calculated(Operation operation, const Operand& left, const Operand& right);
base::Result<Cells> negated(const Cells& cells);
base::Result<Cells> absolute(const Cells& cells);

}  // namespace trireme::api
