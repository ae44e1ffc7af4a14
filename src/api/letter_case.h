#pragma once

#include <locale.h>

#include <string>
#include <string_view>

namespace trireme::api {

// Small and capital letters of any script, one character for one. Bytes that are no UTF-8 stay as they are.
class LetterCase {
 public:
  LetterCase();
  ~LetterCase();
  LetterCase(const LetterCase&) = delete;
  LetterCase& operator=(const LetterCase&) = delete;

  std::string changed(std::string_view text, bool capital) const;

 private:
  locale_t letters_;  // of the C library; without it only those of ASCII are changed
};

}  // namespace trireme::api
