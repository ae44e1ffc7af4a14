#pragma once

#include <memory>
#include <string>
#include <vector>

#include "boosting/feature_columns.h"
#include "data/arrow_c.h"

namespace trireme::boosting {

// An Arrow stream of these batches, at least one, which are not copied. Its consumer releases it.
ArrowArrayStream feature_stream(std::vector<std::unique_ptr<const FeatureColumns>> batches,
                                std::vector<std::string> names);

}  // namespace trireme::boosting
