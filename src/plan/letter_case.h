#pragma once

#include <locale.h>

#include <string>
#include <string_view>

namespace trireme::plan {

// Lower and upper case for any script, one character for one. Invalid UTF-8 stays unchanged.
class LetterCase {
 public:
  LetterCase();
  ~LetterCase();
  LetterCase(const LetterCase&) = delete;
  LetterCase& operator=(const LetterCase&) = delete;

  std::string changed(std::string_view text, bool capital) const;

 private:
  locale_t letters_;  // of the C library; without it only ASCII letters change
};

}  // namespace trireme::plan
