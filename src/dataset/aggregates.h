#pragma once

#include "plan/relational.h"

namespace trireme::dataset {

// Relational::aggregate.
void aggregate(ArrowArrayStream* column, const plan::Aggregating& asked, ArrowArray* out, ArrowSchema* schema);

}  // namespace trireme::dataset
