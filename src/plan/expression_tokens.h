#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace trireme::plan {

enum class TokenKind { kName, kWhole, kReal, kText, kBytes, kSign, kEnd };

// A token of the text of an expression, as in Python.
struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::size_t begin = 0;  // in the text
  std::size_t end = 0;
  std::string text = {};    // of names and operators, and of strings without quotes
  std::uint64_t whole = 0;  // kWhole
  double real = 0;          // kReal
};

// The last token is kEnd.
base::Result<std::vector<Token>> tokens_of(std::string_view text);

// Whether a column of that name needs no col('...').
bool is_name(std::string_view name);

// "'x >' is not an expression: unexpected end, at position 3. Write for example: ..."
base::Error syntax_error(std::string_view text, std::size_t position, std::string_view what);

}  // namespace trireme::plan
