#pragma once

#include <string>
#include <vector>

namespace trireme::cli {

// Columns as wide as their widest cell, two spaces between them, no blanks at the end of a line.
std::string table(const std::vector<std::vector<std::string>>& rows);

// "2026-11-17 14:05", in local time; `wall` in seconds since 1970.
std::string date_text(double wall);

}  // namespace trireme::cli
