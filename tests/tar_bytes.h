#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace trireme::test {

// A member of a tar file: its header, its content and what fills the last block.
inline std::string tar_member(std::string_view name, std::string_view content, char type = '0') {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  char size[16];
  std::snprintf(size, sizeof size, "%011zo", content.size());
  header.replace(124, 11, size);
  header[156] = type;
  header.replace(257, 8,
                 std::string_view("ustar\0"
                                  "00",
                                  8));
  header.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  std::snprintf(size, sizeof size, "%06o", sum);
  header.replace(148, 7, std::string_view(size, 7));
  const std::size_t padding = (512 - content.size() % 512) % 512;
  return header + std::string(content) + std::string(padding, '\0');
}

}  // namespace trireme::test
