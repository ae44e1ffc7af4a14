#include "control/event_log.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "base/json.h"
#include "control/run_folder.h"
#include "storage/local_files.h"
#include "unit/temp_dir.h"

namespace event_log_test {

using namespace trireme;
using trireme::control::EventLog;
using trireme::tests::append_file;
using trireme::tests::TempDir;

namespace {

std::string content(const std::string& path) {
  auto text = storage::read_file(path);
  REQUIRE(text);
  return *std::move(text);
}

}  // namespace

TEST_CASE("events are lines, written when flushed") {
  TempDir dir;
  const std::string path = dir / "events.jsonl";
  auto log = EventLog::open(path);
  REQUIRE(log);
  log->append({{"event", "a"}, {"text", "line\nbreak"}});
  log->append({{"event", "b"}, {"metrics", Dict{{"loss", std::numeric_limits<double>::quiet_NaN()}}}});
  CHECK(content(path).empty());
  REQUIRE(log->flush());
  CHECK(content(path) ==
        "{\"event\":\"a\",\"text\":\"line\\nbreak\"}\n{\"event\":\"b\",\"metrics\":{\"loss\":{\"$float\":\"nan\"}}}\n");
  REQUIRE(log->flush());
  log->append({{"event", "c"}});
  REQUIRE(log->sync());
  CHECK(content(path).ends_with("{\"event\":\"c\"}\n"));
}

TEST_CASE("another thread can sync the same file") {
  TempDir dir;
  auto log = EventLog::open(dir / "events.jsonl");
  REQUIRE(log);
  auto copy = log->duplicate();
  REQUIRE(copy);
  log->append({{"event", "a"}});
  REQUIRE(log->flush());
  CHECK(::fdatasync(copy->get()) == 0);
  // The same file, not only the same name.
  std::filesystem::remove(dir / "events.jsonl");
  log->append({{"event", "b"}});
  REQUIRE(log->flush());
  struct stat known {};
  REQUIRE(::fstat(copy->get(), &known) == 0);
  CHECK(known.st_size == 28);
}

TEST_CASE("a log continues at its end, also after an incomplete line") {
  TempDir dir;
  const std::string path = dir / "events.jsonl";
  append_file(path, "{\"event\":\"whole\"}\n");
  {
    auto log = EventLog::open(path);
    REQUIRE(log);
    log->append({{"event", "next"}});
    REQUIRE(log->flush());
  }
  CHECK(content(path) == "{\"event\":\"whole\"}\n{\"event\":\"next\"}\n");
  append_file(path, "{\"event\":\"ha");
  {
    auto log = EventLog::open(path);
    REQUIRE(log);
    log->append({{"event", "after"}});
    REQUIRE(log->flush());
  }
  CHECK(content(path) == "{\"event\":\"whole\"}\n{\"event\":\"next\"}\n{\"event\":\"ha\n{\"event\":\"after\"}\n");
}

TEST_CASE("a log that cannot be opened or written reports an error") {
  TempDir dir;
  auto absent = EventLog::open(dir / "absent/events.jsonl");
  REQUIRE_FALSE(absent);
  CHECK(absent.error().message().find("absent/events.jsonl") != std::string::npos);

  const std::string path = dir / "events.jsonl";
  auto log = EventLog::open(path);
  REQUIRE(log);
  log->append({{"event", "first"}});
  REQUIRE(log->flush());
  // Simulates a full disk: files may not grow beyond some bytes.
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  auto* old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small{30, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  log->append({{"event", "second, which is longer"}});
  auto failed = log->flush();
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, old_handler);
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message().find("could not write " + path) != std::string::npos);
  // Nothing is lost or written twice after there is space again.
  REQUIRE(log->flush());
  CHECK(content(path) == "{\"event\":\"first\"}\n{\"event\":\"second, which is longer\"}\n");
}

}  // namespace event_log_test
