#pragma once

#include <arrow/table.h>

#include <memory>
#include <string>
#include <vector>

namespace trireme::dataset {

struct Join {
  std::string how;
  std::vector<std::string> left_on;
  std::vector<std::string> right_on;
  std::string left_suffix;
  std::string right_suffix;
};

// Throws if the options are invalid, before any table is read.
void check_join(const Join& join);

std::shared_ptr<::arrow::Table> joined(const Join& join, std::shared_ptr<::arrow::Table> left,
                                       std::shared_ptr<::arrow::Table> right);

}  // namespace trireme::dataset
