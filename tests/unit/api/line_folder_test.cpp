#include "api/line_folder.h"

#include <doctest/doctest.h>

#include <map>

namespace line_folder_test {

using trireme::api::LineFolder;
using trireme::api::OutputLine;
using trireme::api::to_text;
using trireme::base::MonotonicTime;

namespace {

MonotonicTime at(int milliseconds) { return MonotonicTime() + std::chrono::milliseconds(milliseconds); }

using Lines = std::vector<OutputLine>;

}  // namespace

TEST_CASE("equal lines of several ranks are merged within the window") {
  LineFolder folder;
  folder.feed(2, "loading", at(0));
  folder.feed(0, "loading", at(40));
  CHECK(folder.flush(at(100)).empty());
  folder.feed(1, "loading", at(120));
  CHECK(folder.flush(at(150)) == Lines{{{0, 1, 2}, "loading", 1}});
  CHECK(folder.finish().empty());
}

TEST_CASE("a line after the window is shown separately") {
  LineFolder folder;
  folder.feed(0, "loading", at(0));
  folder.feed(1, "loading", at(200));
  CHECK(folder.flush(at(200)) == Lines{{{0}, "loading", 1}});
  CHECK(folder.finish() == Lines{{{1}, "loading", 1}});
}

TEST_CASE("a line that all ranks have printed is due at once") {
  LineFolder folder(2);
  folder.feed(0, "loading", at(0));
  CHECK(folder.flush(at(0)).empty());
  folder.feed(1, "loading", at(1));
  CHECK(folder.flush(at(1)) == Lines{{{0, 1}, "loading", 1}});
}

TEST_CASE("sequences of several ranks fold line by line, in order") {
  LineFolder folder;
  for (int rank : {0, 1, 2}) {
    for (const char* line : {"a", "b", "a", "c"}) folder.feed(rank, line, at(rank));
  }
  CHECK(folder.finish() == Lines{{{0, 1, 2}, "a", 1}, {{0, 1, 2}, "b", 1}, {{0, 1, 2}, "a", 1}, {{0, 1, 2}, "c", 1}});
}

TEST_CASE("folding never reorders the lines of one rank") {
  LineFolder folder;
  folder.feed(0, "a", at(0));
  folder.feed(0, "b", at(1));
  folder.feed(1, "b", at(2));
  folder.feed(1, "a", at(3));  // rank 1 has printed b before: it may not join rank 0's a
  CHECK(folder.finish() == Lines{{{0}, "a", 1}, {{0, 1}, "b", 1}, {{1}, "a", 1}});
}

TEST_CASE("a repeated line is counted") {
  LineFolder folder;
  for (int i = 0; i < 37; ++i) folder.feed(1, "retry", at(i));
  folder.feed(1, "done", at(40));
  Lines lines = folder.flush(at(500));
  CHECK(lines == Lines{{{1}, "retry", 37}, {{1}, "done", 1}});
  CHECK(to_text(lines[0]) == "[rank 1] retry (repeated 37 times)");
  CHECK(to_text(lines[1]) == "[rank 1] done");
}

TEST_CASE("ranks with different repeat counts are shown separately") {
  LineFolder folder;
  for (int i = 0; i < 3; ++i) folder.feed(0, "x", at(i));
  for (int i = 0; i < 3; ++i) folder.feed(1, "x", at(i));
  folder.feed(2, "x", at(4));
  CHECK(folder.finish() == Lines{{{0, 1}, "x", 3}, {{2}, "x", 1}});
}

TEST_CASE("repeats of a line that was already shown wait longer, and are shown before the next line") {
  LineFolder folder;
  folder.feed(0, "waiting", at(0));
  CHECK(folder.flush(at(150)) == Lines{{{0}, "waiting", 1}});
  for (int i = 200; i < 1200; i += 100) folder.feed(0, "waiting", at(i));
  CHECK(folder.flush(at(1200)).empty());

  SUBCASE("they do not delay another rank") {
    folder.feed(1, "hello", at(1200));
    CHECK(folder.flush(at(1350)) == Lines{{{1}, "hello", 1}});
    CHECK(folder.flush(at(3300)) == Lines{{{0}, "waiting", 10}});
  }
  SUBCASE("the rank's own next line releases them") {
    folder.feed(0, "go", at(1210));
    CHECK(folder.flush(at(1210)) == Lines{{{0}, "waiting", 10}});
    CHECK(folder.flush(at(1360)) == Lines{{{0}, "go", 1}});
  }
}

TEST_CASE("memory stays bounded and no line is lost") {
  LineFolder folder;
  std::map<std::string, int> seen;
  int total = 3 * static_cast<int>(LineFolder::kMaxWaiting);
  for (int i = 0; i < total; ++i) folder.feed(0, std::to_string(i), at(0));
  Lines early = folder.flush(at(0));
  CHECK(early.size() == static_cast<std::size_t>(total) - LineFolder::kMaxWaiting);
  Lines late = folder.finish();
  int expected = 0;
  for (const auto* lines : {&early, &late}) {
    for (const auto& line : *lines) CHECK_EQ(line.line, std::to_string(expected++));
  }
  CHECK(expected == total);
}

}  // namespace line_folder_test
