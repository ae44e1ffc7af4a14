#include "base/result.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <memory>

namespace result_test {

using namespace trireme::base;

namespace {

Result<int> parse_digit(char c) {
  if (c < '0' || c > '9') return error("'{}' is not a digit", c);
  return c - '0';
}

Result<int> sum_of(const std::string& digits) {
  int sum = 0;
  for (char c : digits) {
    TRIREME_ASSIGN(int digit, parse_digit(c), "could not add up '{}'", digits);
    sum += digit;
  }
  return sum;
}

Result<void> check_sum(const std::string& digits, int expected) {
  TRIREME_ASSIGN(int sum, sum_of(digits), "check");
  if (sum != expected) return error("{} is not {}", sum, expected);
  return {};
}

Result<std::string> report(const std::string& digits, int expected) {
  TRIREME_TRY(check_sum(digits, expected));
  return std::string("fine");
}

}  // namespace

TEST_CASE("a result holds a value or an error") {
  CHECK(sum_of("123").value() == 6);
  CHECK(*sum_of("") == 0);
  CHECK(sum_of("1"));
  CHECK_FALSE(sum_of("x"));
  CHECK(report("12", 3).value() == "fine");
}

TEST_CASE("each layer adds context") {
  Result<std::string> result = report("1x", 3);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().message() == "check: could not add up '1x': 'x' is not a digit");
  CHECK(result.error().what() == "check");
  REQUIRE(result.error().cause());
  REQUIRE(result.error().cause()->cause());
  CHECK(result.error().cause()->cause()->what() == "'x' is not a digit");
  CHECK_FALSE(result.error().cause()->cause()->cause());
  CHECK(report("12", 4).error().message() == "3 is not 4");
}

TEST_CASE("errors are values: a copy keeps the chain") {
  Error original = error("inner").wrap("outer");
  Error copy = original;
  CHECK(copy.message() == "outer: inner");
  CHECK(std::move(copy).wrap("more").message() == "more: outer: inner");
  CHECK(original.message() == "outer: inner");
}

TEST_CASE("value() of a failed result throws BrokenInvariant") {
  Result<int> failed = error("no luck");
  CHECK_THROWS_AS(failed.value(), BrokenInvariant);
  CHECK_THROWS_AS((void)*failed, BrokenInvariant);
  std::string message;
  try {
    failed.value();
  } catch (const BrokenInvariant& broken) {
    message = broken.what();
  }
  CHECK(message.find("no luck") != std::string::npos);
}

TEST_CASE("a result can hold a move-only value") {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  REQUIRE(result);
  std::unique_ptr<int> taken = std::move(result).value();
  CHECK(*taken == 7);
  Result<std::string> text = std::string("abc");
  CHECK(text->size() == 3);
}

TEST_CASE("system errors have a name and a number") {
  CHECK(system_error("open /x", ENOENT).message() == "open /x: No such file or directory (errno 2)");
}

TEST_CASE("a failed check throws with its location") {
  CHECK_NOTHROW([] { TRIREME_CHECK(1 + 1 == 2, "never {}", "seen"); }());
  std::string message;
  try {
    TRIREME_CHECK(1 + 1 == 3, "world {}", 5);
  } catch (const BrokenInvariant& broken) {
    message = broken.what();
  }
  CHECK(message.find("result_test.cpp:") != std::string::npos);
  CHECK(message.find("1 + 1 == 3 does not hold: world 5") != std::string::npos);
}

TEST_CASE("added context keeps the code of an error") {
  CHECK(error("no code").code() == ErrorCode::kOther);
  const Error late = error(ErrorCode::kTimeout, "nothing for {} s", 3);
  CHECK(late.message() == "nothing for 3 s");
  CHECK(late.code() == ErrorCode::kTimeout);
  auto wrapped = [&]() -> Result<void> {
    TRIREME_TRY(Result<void>(late), "key '{}'", "timed out");
    return {};
  }();
  CHECK(wrapped.error().message() == "key 'timed out': nothing for 3 s");
  CHECK(wrapped.error().code() == ErrorCode::kTimeout);
  CHECK(error("it timed out").code() == ErrorCode::kOther);
}

}  // namespace result_test
