#include "base/json.h"
#include "fuzz/fuzzer.h"

namespace json_fuzzer {

using namespace trireme::base;

void fuzz(const std::uint8_t* data, std::size_t size) {
  auto value = parse_json(as_text(data, size));
  if (!value) {
    expect(!value.error().message().empty(), "an error has a message");
    return;
  }
  // Not compared as values: a NaN equals nothing.
  const std::string text = to_json(*value);
  auto again = parse_json(text);
  expect(again.ok(), "written text can be parsed");
  expect(to_json(*again) == text, "and is the same");
  auto pretty = parse_json(to_pretty_json(*value));
  expect(pretty.ok() && to_json(*pretty) == text, "in every notation");
}

std::vector<std::string> seeds() {
  return {
      R"({"time":100.5,"event":"report","rank":0,"metrics":{"loss":{"$float":"nan"},"b":{"$bytes":"00ff"}},"l":[1,-2,3e10]})",
      R"({"format":1,"name":"\u00e4\n\"\\","nested":[[[[{"a":[true,false,null]}]]]]})",
      R"([9223372036854775807,-9223372036854775808,18446744073709551615,0.1,-0.0,1e308,1e-308])",
      R"("text \ud83d\ude00")",
      "[]",
      "{}",
      "  null ",
      std::string(60, '[') + std::string(60, ']'),
  };
}

TRIREME_FUZZER(json);

}  // namespace json_fuzzer
