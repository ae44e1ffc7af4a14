#pragma once

#include <string>
#include <vector>

#include "trireme/value.h"

namespace trireme::boosting {

// What the columns of the datasets are. Empty names: there is none.
struct RowColumns {
  std::vector<std::string> features;
  std::string label;
  std::string weight;
  std::string group;
  // The values of the categorical features, sorted: {name: [strings or ints]}. A category is the index of its value.
  Dict categories;
};

}  // namespace trireme::boosting
