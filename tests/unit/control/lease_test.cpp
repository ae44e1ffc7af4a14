#include "control/lease.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "base/host.h"
#include "base/json.h"
#include "storage/local_files.h"
#include "storage/remote_files.h"
#include "unit/engine/testing.h"
#include "unit/storage/fake_store.h"
#include "unit/storage/memory_disk.h"
#include "unit/temp_dir.h"

namespace lease_test {

using namespace trireme;
using trireme::control::Lease;
using trireme::engine::testing::eventually;
using trireme::tests::append_file;
using trireme::tests::TempDir;

namespace {

constexpr Lease::Timing kTiming{base::Seconds(0.01), base::Seconds(0.5)};
// The holder beats many times while a challenger watches, however busy the machine and its disk are.
constexpr Lease::Timing kPatient{base::Seconds(0.01), base::Seconds(3)};

struct Desk {
  TempDir dir;
  std::shared_ptr<storage::Files> files = std::make_shared<storage::LocalFiles>();
  std::string path = dir / ".trireme_lease.json";
  int waits = 0;
  std::function<void()> meanwhile = [] {};  // while the challenger watches

  base::Result<std::unique_ptr<Lease>> take(const std::string& id, Lease::Timing timing = kTiming) {
    auto say = [this](const std::string&) {
      ++waits;
      meanwhile();
    };
    return Lease::take(files, dir.path(), id, say, timing);
  }
  std::string refusal(const std::string& id, Lease::Timing timing = kTiming) {
    auto lease = take(id, timing);
    REQUIRE_FALSE(lease);
    return lease.error().message();
  }
  void write(const Dict& lease) { REQUIRE(files->write_atomically(path, base::to_json(lease))); }
  Dict read() {
    auto text = files->read(path);
    if (!text) return {};
    auto lease = base::parse_json_dict(*text);
    return lease ? *lease : Dict();
  }
};

int dead_pid() {
  const int pid = ::fork();
  if (pid == 0) ::_exit(0);
  ::waitpid(pid, nullptr, 0);
  return pid;
}

Dict of_another_host(std::int64_t beat) {
  return {{"id", "other"}, {"host", "elsewhere"}, {"process_table", "another boot pid:[1]"},
          {"pid", 7},      {"pid_start", 1},      {"beat", beat}};
}

}  // namespace

TEST_CASE("the second driver is refused while the first one is alive, and not afterwards") {
  Desk desk;
  {
    auto first = desk.take("first");
    REQUIRE(first);
    CHECK(desk.waits == 0);
    CHECK(desk.read()["id"] == Value("first"));
    const std::string why = desk.refusal("second", kPatient);
    CHECK(why.find("is already running (pid " + std::to_string(::getpid())) != std::string::npos);
    CHECK(desk.waits == 1);
    CHECK(desk.read()["id"] == Value("first"));
  }
  CHECK_FALSE(std::filesystem::exists(desk.path));
  REQUIRE(desk.take("third"));
  CHECK(desk.waits == 1);
}

TEST_CASE("a dead driver on this machine is not waited for") {
  Desk desk;
  Dict lease = of_another_host(3);
  lease["host"] = base::host_name();
  lease["process_table"] = base::process_table();
  SUBCASE("its pid is unused") { lease["pid"] = dead_pid(); }
  SUBCASE("its pid belongs to another process by now") { lease["pid"] = ::getpid(); }
  desk.write(lease);
  auto taken = desk.take("next");
  REQUIRE(taken);
  CHECK(desk.waits == 0);
  CHECK(desk.read()["id"] == Value("next"));
}

TEST_CASE("a container with the same host name has its own pids") {
  Desk desk;
  Dict lease = of_another_host(3);
  lease["host"] = base::host_name();
  SUBCASE("its pid is unused here") { lease["pid"] = dead_pid(); }
  SUBCASE("its pid belongs to another process here") { lease["pid"] = ::getpid(); }
  SUBCASE("it was written by a version without this field") { lease.erase("process_table"); }
  if (lease.contains("process_table")) lease["process_table"] = "another boot pid:[1]";
  desk.write(lease);
  desk.meanwhile = [&] {
    lease["beat"] = 4;
    desk.write(lease);
  };
  CHECK(desk.refusal("next").find("is already running") != std::string::npos);
  CHECK(desk.waits == 1);
}

TEST_CASE("a driver on another machine is watched") {
  Desk desk;
  desk.write(of_another_host(5));
  SUBCASE("its counter does not change: the lease is taken over") {
    auto taken = desk.take("next");
    REQUIRE(taken);
    CHECK(desk.waits == 1);
    CHECK(desk.read()["id"] == Value("next"));
  }
  SUBCASE("its counter changes") {
    desk.meanwhile = [&] { desk.write(of_another_host(6)); };
    CHECK(desk.refusal("next").find("is already running (pid 7 on elsewhere)") != std::string::npos);
  }
  SUBCASE("it has ended, and the next one has reached the same number") {
    desk.meanwhile = [&] {
      Dict later = of_another_host(5);
      later["id"] = "third";
      desk.write(later);
    };
    CHECK(desk.refusal("next").find("is already running") != std::string::npos);
  }
  SUBCASE("it has ended") {
    desk.meanwhile = [&] { std::filesystem::remove(desk.path); };
    CHECK(desk.take("next"));
  }
}

TEST_CASE("an incomplete lease may be in the middle of a write") {
  for (const char* text : {"", "{", "[]", "{}", R"({"id": "other", "ho)"}) {
    CAPTURE(text);
    {
      Desk desk;
      append_file(desk.path, text);
      CHECK(desk.take("next"));  // it does not change: its writer has exited
      CHECK(desk.waits == 1);
    }
    Desk desk;
    append_file(desk.path, text);
    desk.meanwhile = [&] { desk.write(of_another_host(1)); };
    CHECK(desk.refusal("next").find("is already running (pid 7 on elsewhere)") != std::string::npos);
  }
}

TEST_CASE("a lease that is already lost is reported to a callback that is set later") {
  Desk desk;
  auto lease = desk.take("first");
  REQUIRE(lease);
  // The loss is detected at the next beat; confirm() does not wait for one while it is sure. A beat in progress may
  // write its own lease after ours, so it is written again; and a slow disk makes the holder unsure before it knows.
  REQUIRE(eventually([&] {
    desk.write(of_another_host(1));
    const auto sure = (*lease)->confirm();
    return !sure && sure.error().message().find("has taken over") != std::string::npos;
  }));
  std::vector<std::string> told;
  (*lease)->on_lost([&](std::string why) { told.push_back(std::move(why)); });
  REQUIRE(told.size() == 1);
  CHECK(told[0] == "another driver has taken over the run (pid 7 on elsewhere)");
  CHECK((*lease)->confirm().error().message() == told[0]);
  lease->reset();
  CHECK(desk.read()["id"] == Value("other"));  // and the other one keeps it
}

TEST_CASE("a beat is not retried: pauses between retries would exceed a challenger's patience") {
  auto store = std::make_shared<tests::FakeStore>();
  std::atomic<int> pauses = 0;
  std::atomic<bool> away = false;
  std::atomic<int> refused = 0;
  store->before = [&](const std::string&, const std::string&) {
    if (!away) return;
    ++refused;
    throw std::runtime_error("503 Slow Down");
  };
  storage::RetryPolicy policy;
  policy.sleep = [&](base::Seconds) { ++pauses; };
  auto files = std::make_shared<storage::RemoteFiles>(store, "far", policy);
  auto lease = Lease::take(
      files, "run", "id", [](const std::string&) {}, kTiming);
  REQUIRE(lease);
  away = true;
  REQUIRE(eventually([&] { return refused >= 3; }));
  CHECK(pauses == 0);
  away = false;
  CHECK((*lease)->confirm());
}

TEST_CASE("the release of a lease is retried") {
  auto store = std::make_shared<tests::FakeStore>();
  std::atomic<int> refused = 0;
  std::atomic<bool> away = false;
  store->before = [&](const std::string&, const std::string&) {
    if (away && refused++ < 2) throw std::runtime_error("503 Slow Down");
  };
  storage::RetryPolicy policy;
  policy.sleep = [](base::Seconds) {};
  auto files = std::make_shared<storage::RemoteFiles>(store, "far", policy);
  // Without beats: each would use up one of the failures.
  constexpr Lease::Timing kStill{base::Seconds(0.2), base::Seconds(600)};
  auto lease = Lease::take(
      files, "run", "id", [](const std::string&) {}, kStill);
  REQUIRE(lease);
  away = true;
  lease->reset();
  CHECK(refused >= 2);
  CHECK(store->objects().empty());
}

TEST_CASE("a driver that was away for longer than a challenger waits is not sure until it has checked") {
  static std::atomic<double> clock = 1000.0;
  clock = 1000.0;
  Desk desk;
  // The period never ends here: beats are only made on request.
  auto lease = desk.take(
      "first", {base::Seconds(10), base::Seconds(100), base::Seconds(50), [] { return base::Seconds(clock.load()); }});
  REQUIRE(lease);
  CHECK((*lease)->confirm());
  CHECK(desk.read()["beat"] == Value(1));
  clock = 1060.0;  // suspended: no beat in the meantime
  SUBCASE("no challenger came: it beats at once and continues") {
    CHECK((*lease)->confirm());
    CHECK(desk.read()["beat"] == Value(2));
  }
  SUBCASE("another driver has it") {
    desk.write(of_another_host(1));
    CHECK((*lease)->confirm().error().message().find("another driver has taken over the run (pid 7") == 0);
    CHECK(desk.read()["id"] == Value("other"));
  }
  SUBCASE("another driver may have had it and released it") {
    std::filesystem::remove(desk.path);
    CHECK((*lease)->confirm().error().message().find("its lease was removed") == 0);
    CHECK_FALSE(std::filesystem::exists(desk.path));
  }
}

TEST_CASE("of two drivers that start at the same moment, the last writer wins") {
  Desk desk;
  std::atomic<bool> refused = false;
  // A long period: after three seconds it checks whether its lease is still there.
  std::jthread slow([&] { refused = !desk.take("slow", {base::Seconds(60), base::Seconds(0.01)}); });
  REQUIRE(eventually([&] { return desk.read()["id"] == Value("slow"); }));
  desk.write(of_another_host(1));
  slow.join();
  CHECK(refused);
  // The loser does not remove the winner's lease.
  CHECK(desk.read()["id"] == Value("other"));
}

TEST_CASE("storage that is unavailable for a while does not end the lease") {
  auto disk = std::make_shared<storage::MemoryDisk>();
  auto files = std::make_shared<storage::LocalFiles>(disk);
  REQUIRE(files->make_folder("/run"));
  auto beat = [&]() -> std::int64_t {
    auto text = files->read("/run/.trireme_lease.json");
    auto lease = text ? base::parse_json_dict(*text) : base::Result<Dict>(base::error("away"));
    return lease ? (*lease)["beat"].as_int() : -1;
  };
  auto lease = Lease::take(
      files, "/run", "id", [](const std::string&) {}, kTiming);
  REQUIRE(lease);
  REQUIRE(eventually([&] { return beat() >= 2; }));
  const std::int64_t before = beat();
  // Both the reads of this test and the beats use up the failures.
  disk->fail_at(disk->operations(), EIO, 200);
  REQUIRE(eventually([&] { return beat() > before + 2; }));
}

TEST_CASE("unusable storage is reported") {
  TempDir dir;
  append_file(dir / "file", "in the way");
  auto files = std::make_shared<storage::LocalFiles>();
  auto lease = Lease::take(
      files, dir / "file", "id", [](const std::string&) {}, kTiming);
  REQUIRE_FALSE(lease);
  CHECK(lease.error().message().find(dir / "file") != std::string::npos);
}

}  // namespace lease_test
