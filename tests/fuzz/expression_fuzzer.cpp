#include "api/expression_node.h"
#include "api/expression_values.h"
#include "fuzz/fuzzer.h"
#include "trireme/data.h"

using namespace trireme;

namespace {

const Dataset& table() {
  static const Dataset rows = data::from_columns({{"x", List{1, nullptr, -3}},
                                                  {"y", List{0.5, nullptr, 1e300}},
                                                  {"s", List{"a", nullptr, "\xc3\x84\xff"}},
                                                  {"b", List{true, nullptr, false}}});
  return rows;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto node = api::parse_expression(as_text(data, size));
  if (!node) {
    expect(!node.error().message().empty(), "an error has a message");
    return 0;
  }
  const std::string text = api::text_of(**node);
  auto again = api::parse_expression(text);
  // Redundant parentheses may nest it too deeply.
  if (again) expect(api::text_of(**again) == text, "written text parses to the same value");
  else expect(again.error().message().find("nested") != std::string::npos, "written text can be parsed");
  try {
    (void)table().filter(trireme::data::Expression(*node)).take(3);
  } catch (const std::exception& error) {
    expect(std::string_view(error.what()).find("filter(") != std::string_view::npos, "an error names the filter");
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
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
