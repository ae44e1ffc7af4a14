#include "base/clock.h"

#include <doctest/doctest.h>

#include <ctime>

namespace clock_test {

using namespace trireme::base;

TEST_CASE("durations are formatted for people") {
  CHECK(duration_text(0.0) == "0 ms");
  CHECK(duration_text(0.4204) == "420 ms");
  CHECK(duration_text(1.0) == "1.0 s");
  CHECK(duration_text(12.34) == "12.3 s");
  CHECK(duration_text(250.0) == "4 min 10 s");
  CHECK(duration_text(3600.0) == "1 h 0 min");
  CHECK(duration_text(7325.0) == "2 h 2 min");
}

TEST_CASE("timestamps for file names are local and sortable") {
  std::tm local{};
  local.tm_year = 2026 - 1900;
  local.tm_mon = 10;
  local.tm_mday = 15;
  local.tm_hour = 19;
  local.tm_min = 34;
  local.tm_sec = 6;
  local.tm_isdst = -1;
  auto wall = static_cast<double>(std::mktime(&local));
  CHECK(timestamp_name(wall) == "2026-11-15_19-34-06");
  CHECK(timestamp_name(wall) < timestamp_name(wall + 1.0));
}

TEST_CASE("the system clock moves forward") {
  SystemClock clock;
  auto before = clock.now();
  CHECK(clock.now() >= before);
  CHECK(clock.wall() > 1.7e9);
}

}  // namespace clock_test
