#include "plan/letter_case.h"

#include <wctype.h>

#include <bit>
#include <cstdint>

namespace trireme::plan {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: not UTF-8
};

Character first_of(std::string_view text) {
  const auto head = static_cast<unsigned char>(text.front());
  if (head < 0x80) return {head, 1};
  const auto bytes = static_cast<std::size_t>(std::countl_one(head));
  if (bytes < 2 || bytes > 4 || bytes > text.size()) return {};
  std::uint32_t code = head & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((text[i] & 0xc0) != 0x80) return {};
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3f);
  }
  return {code, bytes};
}

void append(std::string& text, std::uint32_t code) {
  const int bytes = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  if (bytes == 1) {
    text.push_back(static_cast<char>(code));
    return;
  }
  text.push_back(static_cast<char>((0xf00 >> bytes & 0xff) | code >> 6 * (bytes - 1)));
  for (int left = bytes - 2; left >= 0; --left) text.push_back(static_cast<char>(0x80 | (code >> 6 * left & 0x3f)));
}

}  // namespace

LetterCase::LetterCase() : letters_(::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {}

LetterCase::~LetterCase() {
  if (letters_) ::freelocale(letters_);
}

std::string LetterCase::changed(std::string_view text, bool capital) const {
  std::string made;
  made.reserve(text.size());
  while (!text.empty()) {
    const auto character = first_of(text);
    const std::size_t bytes = character.bytes ? character.bytes : 1;
    const bool ascii = character.bytes == 1;
    const char from = capital ? 'a' : 'A';
    if (ascii && text.front() >= from && text.front() <= from + 25) {
      made.push_back(static_cast<char>(text.front() ^ 0x20));
    } else if (character.bytes < 2 || !letters_) {
      made.append(text.substr(0, bytes));
    } else {
      append(made, capital ? ::towupper_l(character.code, letters_) : ::towlower_l(character.code, letters_));
    }
    text.remove_prefix(bytes);
  }
  return made;
}

}  // namespace trireme::plan
