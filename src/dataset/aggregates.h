#pragma once

#include "plan/relational.h"

namespace trireme::arrow {

// Relational::aggregate.
void aggregate(ArrowArrayStream* column, plan::Aggregation function, int ddof, ArrowArray* out, ArrowSchema* schema);

}  // namespace trireme::arrow
