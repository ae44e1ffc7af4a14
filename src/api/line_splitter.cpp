#include "api/line_splitter.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace trireme::api {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// The length in bytes of the first character; 0 if it is not valid UTF-8.
std::size_t character_length(std::string_view text) {
  auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return 1;
  std::size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                       : lead >= 0xE0 && lead <= 0xEF ? 3
                       : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                      : 0;
  if (length == 0 || text.size() < length) return 0;
  if (!std::all_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(length), continues)) return 0;
  auto second = static_cast<unsigned char>(text[1]);
  // Overlong forms, surrogates, and code points above U+10FFFF.
  if (lead == 0xE0 && second < 0xA0) return 0;
  if (lead == 0xED && second > 0x9F) return 0;
  if (lead == 0xF0 && second < 0x90) return 0;
  if (lead == 0xF4 && second > 0x8F) return 0;
  return length;
}

// The longest prefix of `text` up to `size` that does not split a character.
std::string_view cut_between_characters(std::string_view text, std::size_t size) {
  if (text.size() <= size) return text;
  std::size_t end = size;
  while (end > 0 && size - end < 3 && continues(text[end])) --end;
  return text.substr(0, end);
}

}  // namespace

std::string valid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    std::size_t length = character_length(bytes);
    if (length > 0) text += bytes.substr(0, length);
    else text += "\xEF\xBF\xBD";
    bytes.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return text;
}

void LineSplitter::feed(std::string_view bytes, std::vector<std::string>& lines) {
  while (!bytes.empty()) {
    if (returned_ && bytes[0] != '\n' && bytes[0] != '\r') {
      line_.clear();
      left_out_ = 0;
      overwritten_ = true;
    }
    if (bytes[0] != '\r') returned_ = false;
    std::size_t end = bytes.find_first_of("\r\n");
    append(bytes.substr(0, end));
    if (end == std::string_view::npos) return;
    if (bytes[end] == '\n') end_line(lines);
    else returned_ = true;
    bytes.remove_prefix(end + 1);
  }
}

void LineSplitter::finish(std::vector<std::string>& lines) {
  if (!line_.empty()) end_line(lines);
  overwritten_ = false;
  returned_ = false;
}

void LineSplitter::append(std::string_view bytes) {
  // Keeps a few bytes more than are shown, so that the cut can be at a character boundary.
  std::size_t room = kMaxLine + 4 - line_.size();
  line_ += bytes.substr(0, room);
  left_out_ += bytes.size() - std::min(bytes.size(), room);
}

std::string LineSplitter::progress() const {
  const bool blank = line_.find_first_not_of(' ') == std::string::npos;  // clears a progress bar
  return overwritten_ && !blank ? shown() : "";
}

std::string LineSplitter::shown() const {
  std::string_view whole = cut_between_characters(line_, kMaxLine);
  std::size_t hidden = left_out_ + line_.size() - whole.size();
  std::string text = valid_utf8(whole);
  if (hidden > 0) text += fmt::format(" ... ({} in the log file)", base::count_of(hidden, "more byte"));
  return text;
}

void LineSplitter::end_line(std::vector<std::string>& lines) {
  lines.push_back(shown());
  line_.clear();
  left_out_ = 0;
  overwritten_ = false;
  returned_ = false;
}

}  // namespace trireme::api
