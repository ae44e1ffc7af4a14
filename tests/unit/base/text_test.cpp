#include "base/text.h"

#include <doctest/doctest.h>

#include "base/hex.h"

namespace text_test {

using namespace trireme::base;

using Words = std::vector<std::string>;

TEST_CASE("join and split") {
  CHECK(join({}, ", ").empty());
  CHECK(join({"a"}, ", ") == "a");
  CHECK(join({"a", "b", "c"}, ", ") == "a, b, c");
  CHECK(split("a,b,,c", ',') == Words{"a", "b", "", "c"});
  CHECK(split("", ',') == Words{""});
  CHECK(split("a,", ',') == Words{"a", ""});
  CHECK(trim(" \t a b \r\n") == "a b");
  CHECK(trim(" \n").empty());
}

TEST_CASE("a typo gets a suggestion, an unrelated word does not") {
  Words names = {"num_workers", "use_gpu", "placement_strategy"};
  CHECK(did_you_mean("num_worker", names) == "; did you mean 'num_workers'?");
  CHECK(did_you_mean("usegpu", names) == "; did you mean 'use_gpu'?");
  CHECK(did_you_mean("learning_rate", names).empty());
  CHECK(did_you_mean("", names).empty());
  CHECK(did_you_mean("x", {}).empty());
}

TEST_CASE("counts with plurals") {
  CHECK(count_of(0, "worker") == "0 workers");
  CHECK(count_of(1, "worker") == "1 worker");
  CHECK(count_of(4, "worker") == "4 workers");
  CHECK(count_of(2, "entry") == "2 entries");
  CHECK(count_of(2, "day") == "2 days");
  CHECK(count_of(2, "batch") == "2 batches");
  CHECK(count_of(1, "batch") == "1 batch");
  CHECK(count_of(3, "process") == "3 processes");
  CHECK(amount(2.0) == "2");
  CHECK(amount(0.5) == "0.5");
  CHECK(amount(0.1 + 0.2) == "0.3");
}

TEST_CASE("long texts are truncated between two characters") {
  CHECK(shortened("abc", 3) == "abc");
  CHECK(shortened("abcdef", 4) == "abcd\n... and 2 bytes more");
  CHECK(shortened("a\u00e9\u00e9", 4) == "a\u00e9\n... and 2 bytes more");
  CHECK(shortened("\u20ac", 2) == "\n... and 3 bytes more");
}

TEST_CASE("lists of ranks are abbreviated") {
  CHECK(rank_list({}).empty());
  CHECK(rank_list({3}) == "3");
  CHECK(rank_list({5, 0, 2, 1}) == "0-2,5");
  CHECK(rank_list({0, 2, 4}) == "0,2,4");
  CHECK(rank_list({7, 8}) == "7-8");
}

TEST_CASE("bytes as hex") {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  CHECK(from_hex(to_hex(all)) == all);
  CHECK(to_hex("\x0F\xA0") == "0fa0");
  CHECK(from_hex("0FA0") == "\x0F\xA0");
  CHECK(from_hex("") == "");
  CHECK_FALSE(from_hex("abc"));
  CHECK_FALSE(from_hex("0g"));
}

TEST_CASE("UTF-8 is recognized") {
  for (const char* valid : {"", "plain", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                            "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "a\xe2\x82\xac z"}) {
    CAPTURE(to_hex(valid));
    CHECK(is_utf8(valid));
  }
  // Continuations alone, overlong encodings, surrogates, values beyond the last code point, and cut characters.
  for (const char* invalid :
       {"\x80", "a\xbf", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xff", "\xc2", "\xe2\x82", "\xf0\x90\x80", "\xc2z", "\xe2\x82z", "\xf0\x90\x80z"}) {
    CAPTURE(to_hex(invalid));
    CHECK(!is_utf8(invalid));
  }
  CHECK(is_utf8(std::string_view("a\0b", 3)));
}

}  // namespace text_test
