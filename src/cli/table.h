#pragma once

#include <string>
#include <vector>

namespace trireme::cli {

// Columns as wide as their widest cell, separated by two spaces, without trailing spaces.
std::string table(const std::vector<std::vector<std::string>>& rows);

// "2026-11-17 14:05", in local time; `wall` in seconds since 1970.
std::string date_text(double wall);

}  // namespace trireme::cli
