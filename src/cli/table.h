#pragma once

#include <string>
#include <vector>

namespace trireme::cli {

// Columns as wide as their widest cell, two spaces between them, no blanks at the end of a line.
std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace trireme::cli
