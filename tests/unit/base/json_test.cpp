#include "base/json.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

namespace json_test {

using namespace trireme;
using namespace trireme::base;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Dict everything() {
  return {{"null", nullptr},
          {"true", true},
          {"int", 42},
          {"least", std::numeric_limits<std::int64_t>::min()},
          {"most", std::numeric_limits<std::int64_t>::max()},
          {"whole float", 1.0},
          {"third", 1.0 / 3.0},
          {"tiny", 5e-324},
          {"huge", 1.7976931348623157e308},
          {"negative zero", -0.0},
          {"inf", kInf},
          {"-inf", -kInf},
          {"text", "gr\xC3\xBC\xC3\x9F \"quoted\" \\ \n\t\x01"},
          {"", "empty key"},
          {"bytes", Bytes{std::string("\x00\xFF\x80", 3)}},
          {"no bytes", Bytes{}},
          {"list", List{1, 2.5, "x", List{}, Dict{}}},
          {"dict", Dict{{"a", Dict{{"b", nullptr}}}}}};
}

std::string nested(int depth) {
  return std::string(static_cast<std::size_t>(depth), '[') + std::string(static_cast<std::size_t>(depth), ']');
}

}  // namespace

TEST_CASE("JSON round trip") {
  Value value = everything();
  CHECK(parse_json(to_json(value)).value() == value);
  CHECK(parse_json(to_pretty_json(value)).value() == value);
  CHECK(to_json(value).find('\n') == std::string::npos);  // one line: the event log depends on it
}

TEST_CASE("MessagePack round trip") {
  Value value = everything();
  CHECK(parse_msgpack(to_msgpack(value)).value() == value);
}

TEST_CASE("NaN survives both formats, and the JSON stays valid") {
  CHECK(to_json(kNaN) == R"({"$float":"nan"})");
  CHECK(to_json(-kInf) == R"({"$float":"-inf"})");
  CHECK(std::isnan(parse_json(to_json(List{kNaN})).value().as_list()[0].get<double>()));
  CHECK(std::isnan(parse_msgpack(to_msgpack(kNaN)).value().get<double>()));
}

TEST_CASE("JSON formatting") {
  CHECK(to_json(1.0) == "1.0");
  CHECK(to_json(1) == "1");
  CHECK(to_json(1e300) == "1e+300");
  CHECK(to_json(Bytes{"\xAB"}) == R"({"$bytes":"ab"})");
  CHECK(to_json(Dict{{"b", 1}, {"a", List{true, nullptr}}}) == R"({"b":1,"a":[true,null]})");
  CHECK(to_pretty_json(Dict{{"a", List{1, 2}}, {"b", Dict{}}}) == "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}");
  CHECK(to_json(std::string("a\xFF")) == "\"a\xEF\xBF\xBD\"");  // invalid UTF-8 never breaks a file
}

TEST_CASE("dicts that resemble a special value stay unchanged") {
  for (const char* text : {R"({"$float":"1.5"})", R"({"$float":1})", R"({"$bytes":"abc"})", R"({"$bytes":"zz"})",
                           R"({"$float":"nan","x":1})"}) {
    CAPTURE(text);
    CHECK(parse_json(text).value().get_if<Dict>());
  }
}

TEST_CASE("numbers beyond int64 become floats") {
  CHECK(parse_json("18446744073709551615").value().get<double>() == 18446744073709551615.0);
  CHECK(parse_json("9223372036854775807").value().get<std::int64_t>() == 9223372036854775807);
}

TEST_CASE("malformed text is rejected with its position") {
  for (const char* text : {"", "{", "[1,]", "nul", "{\"a\":}", "1 2", "\"\xFF\"", "{'a':1}"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_json(text));
  }
  CHECK(parse_json("[1,]").error().message().find("not JSON: at byte 4") != std::string::npos);
  CHECK(parse_json_dict("[]").error().message() == "expected a JSON object, got list");
  CHECK(parse_json_dict("{\"a\":1}").value() == Dict{{"a", 1}});
}

TEST_CASE("nesting has a limit") {
  CHECK(parse_json(nested(kMaxDepth)));
  CHECK(parse_json(nested(kMaxDepth + 1)).error().message().find("nested deeper than 64") != std::string::npos);
  CHECK_FALSE(parse_json(nested(100'000)));
  CHECK(parse_msgpack(std::string(kMaxDepth - 1, '\x91') + "\x90"));
  CHECK_FALSE(parse_msgpack(std::string(kMaxDepth, '\x91') + "\x90"));
  CHECK_FALSE(parse_msgpack(std::string(100'000, '\x91')));
}

TEST_CASE("malformed MessagePack is rejected") {
  CHECK_FALSE(parse_msgpack(""));
  CHECK_FALSE(parse_msgpack("\xC1"));                                  // an unused type code
  CHECK_FALSE(parse_msgpack(std::string("\xDD\xFF\xFF\xFF\xFF", 5)));  // announces 4 billion elements, has none
  CHECK_FALSE(parse_msgpack(std::string("\xDB\xFF\xFF\xFF\xFFx", 6)));
  CHECK_FALSE(parse_msgpack(std::string("\x01\x02", 2)));  // trailing bytes
  std::string whole = to_msgpack(everything());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK_FALSE(parse_msgpack(std::string_view(whole).substr(0, size)));
  }
}

}  // namespace json_test
