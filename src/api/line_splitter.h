#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::api {

// Cuts the bytes of one log into lines that are fit to be shown: of a progress bar (\r) only the last state, invalid
// UTF-8 replaced, what goes beyond kMaxLine left out with a mark.
class LineSplitter {
 public:
  static constexpr std::size_t kMaxLine = 4096;

  void feed(std::string_view bytes, std::vector<std::string>& lines);
  // The last line when it has no newline (yet).
  void finish(std::vector<std::string>& lines);
  // The state of a progress bar that is being drawn: of a line without a newline that was overwritten (\r). Empty when
  // there is none.
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

// Bytes that are no UTF-8 become U+FFFD.
std::string valid_utf8(std::string_view bytes);

}  // namespace trireme::api
