#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::api {

// Splits the bytes of one log into lines for display: only the last state of a progress bar (\r), invalid UTF-8
// replaced, lines longer than kMaxLine truncated with a note.
class LineSplitter {
 public:
  static constexpr std::size_t kMaxLine = 4096;

  void feed(std::string_view bytes, std::vector<std::string>& lines);
  // The last line when it has no newline (yet).
  void finish(std::vector<std::string>& lines);
  // The state of a progress bar: a line without a newline that was overwritten (\r). Empty if there is none.
  std::string progress() const;

 private:
  void append(std::string_view bytes);
  void end_line(std::vector<std::string>& lines);
  std::string shown() const;

  std::string line_;
  std::size_t left_out_ = 0;  // bytes of this line beyond kMaxLine
  bool overwritten_ = false;  // the line is a progress bar
  bool returned_ = false;     // the last byte was \r: a newline ends the line, anything else overwrites it
};

// Replaces invalid UTF-8 by U+FFFD.
std::string valid_utf8(std::string_view bytes);

}  // namespace trireme::api
