#pragma once

#include <string>
#include <vector>

#include "trireme/data.h"

namespace trireme::boosting {

// Columns of a batch as rows of floats; nulls are NaN.
std::vector<float> matrix_of(const Batch& batch, const std::vector<std::string>& columns);

// "number", "string" or the name of another type, by column: {"rows": ..., "columns": ...} as BoostingJob has it.
Dict described(const Dataset& dataset);

}  // namespace trireme::boosting
