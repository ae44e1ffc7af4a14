#include "plan/expression_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

namespace trireme::plan {
namespace {

// Python keywords, which are not columns.
constexpr std::array<std::string_view, 35> kWords{
    "and", "or",     "not",     "in",    "is",     "None",   "True",   "False",    "if",   "else",  "elif",    "lambda",
    "for", "while",  "def",     "class", "return", "import", "from",   "as",       "with", "yield", "await",   "async",
    "try", "except", "finally", "raise", "assert", "del",    "global", "nonlocal", "pass", "break", "continue"};
constexpr std::array<std::string_view, 8> kPairs{"==", "!=", "<=", ">=", "**", "//", "<<", ">>"};
constexpr std::string_view kSingle = "<>+-*/%()[]{},&|~^@.:=!";

bool is_digit(char sign) { return sign >= '0' && sign <= '9'; }

bool begins_name(char sign) {
  return sign == '_' || (sign >= 'a' && sign <= 'z') || (sign >= 'A' && sign <= 'Z') ||
         static_cast<unsigned char>(sign) >= 0x80;
}

void append_utf8(std::string& text, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xe0 | code >> 12);
    } else {
      put(0xf0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3f));
    }
    put(0x80 | (code >> 6 & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  base::Result<std::vector<Token>> run() {
    std::vector<Token> tokens;
    while (true) {
      while (at_ < text_.size() && std::string_view(" \t\n\r\f").find(text_[at_]) != std::string_view::npos) ++at_;
      Token token;
      token.begin = at_;
      if (at_ == text_.size()) {
        token.end = at_;
        tokens.push_back(std::move(token));
        return tokens;
      }
      TRIREME_TRY(read(token));
      token.end = at_;
      tokens.push_back(std::move(token));
    }
  }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  base::Error wrong(std::size_t position, std::string_view what) const { return syntax_error(text_, position, what); }

  base::Result<void> read(Token& token) {
    const char sign = peek();
    if (is_digit(sign) || (sign == '.' && is_digit(peek(1)))) return read_number(token);
    if (sign == '\'' || sign == '"') return read_text(token, false, false);
    if (begins_name(sign)) return read_word(token);
    token.kind = TokenKind::kSign;
    for (const auto pair : kPairs) {
      if (text_.substr(at_).starts_with(pair)) {
        token.text = pair;
        at_ += 2;
        return {};
      }
    }
    if (kSingle.find(sign) == std::string_view::npos) {
      const auto shown = sign > 0x20 && sign < 0x7f ? std::string(1, sign) : fmt::format("\\x{:02x}", sign & 0xff);
      return wrong(at_, fmt::format("unexpected character '{}'", shown));
    }
    token.text = sign;
    ++at_;
    return {};
  }

  base::Result<void> read_word(Token& token) {
    const std::size_t begin = at_;
    while (begins_name(peek()) || is_digit(peek())) ++at_;
    token.text = text_.substr(begin, at_ - begin);
    token.kind = TokenKind::kName;
    if (peek() != '\'' && peek() != '"') return {};
    std::string prefix = token.text;
    std::transform(prefix.begin(), prefix.end(), prefix.begin(),
                   [](char c) { return c < 'a' && c >= 'A' ? static_cast<char>(c + 32) : c; });
    const bool raw = prefix == "r" || prefix == "br" || prefix == "rb";
    const bool bytes = prefix == "b" || prefix == "br" || prefix == "rb";
    if (!raw && !bytes && prefix != "u") return wrong(begin, fmt::format("invalid string prefix: {}'...'", token.text));
    token.text.clear();
    return read_text(token, raw, bytes);
  }

  base::Result<void> read_number(Token& token) {
    const std::size_t begin = at_;
    const char second = static_cast<char>(peek(1) | 0x20);
    const int base = peek() != '0' ? 10 : second == 'x' ? 16 : second == 'o' ? 8 : second == 'b' ? 2 : 10;
    if (base != 10) at_ += 2;
    std::string digits = taken_digits(base == 16);
    bool real = false;
    if (base == 10) {
      if (peek() == '.') {
        real = true;
        ++at_;
        digits += '.' + taken_digits(false);
      }
      const bool signed_exponent = (peek(1) == '-' || peek(1) == '+') && is_digit(peek(2));
      if ((peek() | 0x20) == 'e' && (is_digit(peek(1)) || signed_exponent)) {
        real = true;
        digits += 'e';
        if (peek(1) == '-') digits += '-';
        at_ += signed_exponent ? 2 : 1;
        digits += taken_digits(false);
      }
    }
    if (begins_name(peek()) || is_digit(peek())) return wrong(begin, "invalid number");
    return real ? real_of(token, digits) : whole_of(token, digits, base, begin);
  }

  // Without '_' between digits.
  std::string taken_digits(bool hexadecimal) {
    std::string digits;
    const auto fits = [&](char sign) {
      const char small = static_cast<char>(sign | 0x20);
      return is_digit(sign) || (hexadecimal && small >= 'a' && small <= 'f');
    };
    for (; fits(peek()) || (peek() == '_' && !digits.empty() && fits(peek(1))); ++at_) {
      if (peek() != '_') digits += peek();
    }
    return digits;
  }

  static base::Result<void> real_of(Token& token, const std::string& digits) {
    token.kind = TokenKind::kReal;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), token.real);
    if (read.ec != std::errc::result_out_of_range) return {};
    // As in Python, too large is infinite and too small is zero.
    const bool small = digits.find("e-") != std::string::npos || digits.front() == '.' || digits.starts_with("0.");
    token.real = small ? 0.0 : std::numeric_limits<double>::infinity();
    return {};
  }

  base::Result<void> whole_of(Token& token, const std::string& digits, int base, std::size_t begin) const {
    token.kind = TokenKind::kWhole;
    const char* end = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), end, token.whole, base);
    if (read.ec == std::errc::result_out_of_range) return wrong(begin, "this number is too large for 64 bits");
    if (read.ec != std::errc() || read.ptr != end) return wrong(begin, "invalid number");
    return {};
  }

  base::Result<void> read_text(Token& token, bool raw, bool bytes) {
    const std::size_t begin = at_;
    const char quote = text_[at_++];
    token.kind = bytes ? TokenKind::kBytes : TokenKind::kText;
    while (true) {
      if (at_ >= text_.size() || peek() == '\n') return wrong(begin, "unterminated string");
      const char sign = text_[at_++];
      if (sign == quote) return {};
      if (bytes && static_cast<unsigned char>(sign) >= 0x80) return wrong(at_ - 1, "bytes must be ASCII: use \\xff");
      if (sign != '\\' || at_ >= text_.size()) token.text += sign;
      else if (raw) (token.text += sign) += text_[at_++];
      else TRIREME_TRY(read_escape(token.text, bytes));
    }
  }

  base::Result<void> read_escape(std::string& text, bool bytes) {
    constexpr std::string_view kFrom = "\\'\"abfnrtv";
    constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
    const char sign = text_[at_++];
    if (const auto known = kFrom.find(sign); known != std::string_view::npos) {
      text += kTo[known];
      return {};
    }
    const bool octal = sign >= '0' && sign <= '7';
    const std::size_t most = octal ? 3 : sign == 'x' ? 2 : sign == 'u' && !bytes ? 4 : sign == 'U' && !bytes ? 8 : 0;
    if (most == 0) {  // as in Python, a backslash before anything else is literal
      (text += '\\') += sign;
      return {};
    }
    if (octal) --at_;
    std::uint32_t code = 0;
    const auto rest = text_.substr(at_, most);
    const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), code, octal ? 8 : 16);
    const auto length = static_cast<std::size_t>(read.ptr - rest.data());
    const bool surrogate = code >= 0xd800 && code < 0xe000;
    if (read.ec != std::errc() || (!octal && length != most) || code > 0x10ffff || (surrogate && !bytes)) {
      return wrong(at_, fmt::format("'\\{}' is not followed by a valid character code", sign));
    }
    at_ += length;
    if (bytes) text += static_cast<char>(code);
    else append_utf8(text, code);
    return {};
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

base::Result<std::vector<Token>> tokens_of(std::string_view text) { return Lexer(text).run(); }

bool is_name(std::string_view name) {
  if (name.empty() || !begins_name(name.front())) return false;
  if (std::find(kWords.begin(), kWords.end(), name) != kWords.end()) return false;
  return std::all_of(name.begin(), name.end(), [](char sign) { return begins_name(sign) || is_digit(sign); });
}

base::Error syntax_error(std::string_view text, std::size_t position, std::string_view what) {
  return base::error("'{}' is not an expression: {}, at position {}. Write for example: \"x > 3 and y == 'a'\"", text,
                     what, position);
}

}  // namespace trireme::plan
