#include "api/log_follower.h"

#include <doctest/doctest.h>

#include "unit/temp_dir.h"

namespace log_follower_test {

using trireme::api::last_lines;
using trireme::api::LineSplitter;
using trireme::api::LogFollower;
using trireme::api::LogLine;
using trireme::api::valid_utf8;
using trireme::tests::append_file;
using trireme::tests::TempDir;

namespace {

using Lines = std::vector<LogLine>;
using Texts = std::vector<std::string>;

constexpr trireme::base::MonotonicTime kNow{};

// Byte by byte and all at once must give the same lines.
Texts split_both_ways(std::string_view bytes) {
  Texts at_once, bytewise;
  LineSplitter whole, slow;
  whole.feed(bytes, at_once);
  whole.finish(at_once);
  for (char c : bytes) slow.feed(std::string_view(&c, 1), bytewise);
  slow.finish(bytewise);
  CHECK(at_once == bytewise);
  return at_once;
}

}  // namespace

TEST_CASE("bytes become lines") {
  struct Case {
    std::string bytes;
    Texts lines;
  };
  const Case cases[] = {
      {"", {}},
      {"a\nb\n", {"a", "b"}},
      {"a\n\nb", {"a", "", "b"}},
      {"a\r\nb\r\n", {"a", "b"}},
      {"10%\r20%\r100%\nend\n", {"100%", "end"}},
      {"\r10%\r 20%", {" 20%"}},
      {"50%\r", {"50%"}},
      {"50%\r\r\n", {"50%"}},
  };
  for (const auto& each : cases) {
    CAPTURE(each.bytes);
    CHECK(split_both_ways(each.bytes) == each.lines);
  }
}

TEST_CASE("a very long line is cut at a character boundary, with a note") {
  std::string bytes(LineSplitter::kMaxLine - 1, 'x');
  bytes += "\xC3\xA4";  // one character across the limit
  bytes += std::string(1'000'000, 'y') + "\nnext\n";
  Texts lines = split_both_ways(bytes);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == std::string(LineSplitter::kMaxLine - 1, 'x') + " ... (1000002 more bytes in the log file)");
  CHECK(lines[1] == "next");
  CHECK(split_both_ways(std::string(LineSplitter::kMaxLine, 'x'))[0].size() == LineSplitter::kMaxLine);
}

TEST_CASE("invalid UTF-8 is replaced") {
  CHECK(valid_utf8("gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x9A\xA3") ==
        "gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x9A\xA3");
  CHECK(valid_utf8("a\xFFz") == "a\xEF\xBF\xBDz");
  CHECK(valid_utf8("\xC0\x80") == "\xEF\xBF\xBD\xEF\xBF\xBD");                  // overlong
  CHECK(valid_utf8("\xED\xA0\x80") == "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
  CHECK(valid_utf8("\xE2\x82") == "\xEF\xBF\xBD\xEF\xBF\xBD");                  // cut off
}

TEST_CASE("files are followed while they grow") {
  TempDir dir;
  LogFollower follower;
  follower.follow(0, dir / "0.log");
  follower.follow(1, dir / "1.log");
  CHECK(follower.poll(kNow).empty());  // they do not exist yet

  append_file(dir / "1.log", "one\ntw");
  CHECK(follower.poll(kNow) == Lines{{1, "one"}});
  append_file(dir / "1.log", "o\n");
  append_file(dir / "0.log", "zero\n");
  CHECK(follower.poll(kNow) == Lines{{0, "zero"}, {1, "two"}});
  append_file(dir / "0.log", "no newline");
  CHECK(follower.poll(kNow).empty());
  CHECK(follower.finish() == Lines{{0, "no newline"}});
  CHECK(follower.finish().empty());
}

TEST_CASE("the rest of an attempt's log is read before that of the next attempt") {
  TempDir dir;
  LogFollower follower;
  follower.follow(0, dir / "attempt_0.log");
  append_file(dir / "attempt_0.log", "a\n");
  CHECK(follower.poll(kNow) == Lines{{0, "a"}});
  append_file(dir / "attempt_0.log", "b\nlast words");
  append_file(dir / "attempt_1.log", "c\n");
  follower.follow(0, dir / "attempt_1.log");
  CHECK(follower.poll(kNow) == Lines{{0, "b"}, {0, "last words"}, {0, "c"}});
}

TEST_CASE("a log larger than one read takes several polls, and is complete at the end") {
  TempDir dir;
  std::string text;
  std::size_t count = 0;
  while (text.size() < 3 * LogFollower::kReadSize) text += "line " + std::to_string(count++) + "\n";
  append_file(dir / "0.log", text);
  LogFollower follower;
  follower.follow(0, dir / "0.log");
  Lines lines = follower.poll(kNow);
  CHECK(lines.size() < count);
  for (auto& line : follower.finish()) lines.push_back(line);
  REQUIRE(lines.size() == count);
  CHECK(lines.back().line == "line " + std::to_string(count - 1));
}

TEST_CASE("a truncated log is read from its start again") {
  TempDir dir;
  append_file(dir / "0.log", "first\n");
  LogFollower follower;
  follower.follow(0, dir / "0.log");
  CHECK(follower.poll(kNow).size() == 1);
  std::filesystem::resize_file(dir / "0.log", 0);
  CHECK(follower.poll(kNow).empty());
  append_file(dir / "0.log", "2nd\n");
  CHECK(follower.poll(kNow) == Lines{{0, "2nd"}});
}

TEST_CASE("the last lines of a log") {
  TempDir dir;
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "line " + std::to_string(i) + "\n";
  append_file(dir / "log", text);
  CHECK(last_lines(dir / "log", 2) == Texts{"line 19998", "line 19999"});
  Texts many = last_lines(dir / "log", 5000);
  REQUIRE(many.size() == 5000);
  CHECK(many.front() == "line 15000");
  CHECK(last_lines(dir / "log", 100000).size() == 20000);
  CHECK(last_lines(dir / "absent", 3).empty());
  CHECK(last_lines(dir / "log", 0).empty());

  append_file(dir / "huge", std::string(3 << 20, 'x'));  // one line, larger than the read limit
  Texts huge = last_lines(dir / "huge", 3);
  REQUIRE(huge.size() == 1);
  CHECK(huge[0].starts_with("xxx"));
}

TEST_CASE("a progress bar is shown every few seconds, and when it is complete") {
  TempDir dir;
  LogFollower follower;
  follower.follow(0, dir / "0.log");
  auto now = kNow;
  append_file(dir / "0.log", "\r  0%|    |");
  CHECK(follower.poll(now).empty());  // most bars are complete before this
  now += LogFollower::kProgressPeriod;
  append_file(dir / "0.log", "\r 50%|##  |");
  CHECK(follower.poll(now) == Lines{{0, " 50%|##  |"}});
  append_file(dir / "0.log", "\r 51%|##  |");
  CHECK(follower.poll(now).empty());
  now += LogFollower::kProgressPeriod;
  CHECK(follower.poll(now) == Lines{{0, " 51%|##  |"}});
  now += LogFollower::kProgressPeriod;
  CHECK(follower.poll(now).empty());  // no change
  append_file(dir / "0.log", "\r100%|####|\nno bar");
  CHECK(follower.poll(now) == Lines{{0, "100%|####|"}});
  now += LogFollower::kProgressPeriod;
  CHECK(follower.poll(now).empty());  // an incomplete line
  append_file(dir / "0.log", "\r      \r");
  now += LogFollower::kProgressPeriod;
  CHECK(follower.poll(now).empty());  // a cleared bar
}

}  // namespace log_follower_test
