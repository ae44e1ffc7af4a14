#include "fuzz/fuzzer.h"
#include "plan/expression_node.h"

namespace expression_fuzzer {

using namespace trireme;

void fuzz(const std::uint8_t* data, std::size_t size) {
  auto node = plan::parse_expression(as_text(data, size));
  if (!node) {
    expect(!node.error().message().empty(), "an error has a message");
    return;
  }
  const std::string text = plan::text_of(**node);
  auto again = plan::parse_expression(text);
  // Redundant parentheses may nest it too deeply.
  if (again) expect(plan::text_of(**again) == text, "written text parses to the same value");
  else expect(again.error().message().find("nested") != std::string::npos, "written text can be parsed");
}

std::vector<std::string> seeds() {
  return {
      "x > 3 and s == 'a' or not b",
      "1 < x <= 0x10 and y / 2 // 3 % 4 ** 2 - -1.5e3 != x * 2",
      "s in ['a', \"b\", None] or x not in (1, 2.5) or s is not None",
      "abs(x) + length(s) > 1_000 & (b | is_nan(y))",
      "lower(s) == '\\u00e4\\x41\\n\\'' 'b'",
      "col('strange name') == b'\\xff' or is_valid(x)",
      "~b and upper(s) < r'\\a' and None == x",
      "((((x))))",
  };
}

TRIREME_FUZZER(expression);

}  // namespace expression_fuzzer
