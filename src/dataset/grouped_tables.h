#pragma once

#include <arrow/table.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/arrow/data.h"

namespace trireme::dataset {

// One row for each group, or one row if there are no keys: the keys and the aggregates.
std::shared_ptr<::arrow::Table> grouped(std::shared_ptr<::arrow::Table> table, const std::vector<std::string>& keys,
                                        const std::vector<data::Aggregate>& aggregates);

}  // namespace trireme::dataset
