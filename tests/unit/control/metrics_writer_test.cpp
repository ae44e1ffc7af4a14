#include "control/metrics_writer.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "storage/local_files.h"
#include "unit/engine/testing.h"
#include "unit/temp_dir.h"

namespace metrics_writer_test {

using namespace trireme;
using trireme::control::MetricsWriter;
using trireme::engine::testing::eventually;
using trireme::tests::TempDir;

namespace {

Dict report(std::int64_t index, Metrics metrics) {
  Dict event{{"time", 1.5}, {"event", "report"}, {"attempt", 0}, {"rank", 0}, {"index", index}};
  event["metrics"] = std::move(metrics);
  return event;
}

struct Desk {
  TempDir dir;
  std::mutex mutex;
  std::vector<std::string> warnings;
  MetricsWriter writer{dir.path(), [this](std::string message) {
                         const std::lock_guard lock(mutex);
                         warnings.push_back(std::move(message));
                       }};

  std::size_t warned() {
    const std::lock_guard lock(mutex);
    return warnings.size();
  }
  std::string table() {
    auto text = storage::read_file(dir / "metrics.csv");
    return text ? *text : "";
  }
};

}  // namespace

TEST_CASE("reports are written at a flush, and at the latest at the end") {
  Desk desk;
  desk.writer.append(report(0, {{"loss", 1}}));
  desk.writer.flush();
  REQUIRE(eventually([&] { return desk.table() == "step,time,attempt,loss\n0,1.5,0,1\n"; }));
  desk.writer.append(report(1, {{"loss", 2}, {"new", 3}}));
  CHECK(desk.writer.close());
  CHECK(desk.table() == "step,time,attempt,loss,new\n0,1.5,0,1,\n1,1.5,0,2,3\n");
  CHECK(desk.writer.close());
  CHECK(desk.warned() == 0);
}

TEST_CASE("a table that cannot be written is reported once, and written later if possible") {
  Desk desk;
  std::filesystem::create_directory(desk.dir / "metrics.csv");
  for (int i = 0; i < 3; ++i) {
    desk.writer.append(report(i, {{"loss", i}}));
    desk.writer.flush();
    REQUIRE(eventually([&] { return desk.warned() == 1; }));
  }
  CHECK(desk.warnings[0].find("the run continues without metrics.csv") == 0);
  SUBCASE("it stays unwritable") { CHECK(desk.writer.close()); }
  SUBCASE("it becomes writable") {
    std::filesystem::remove(desk.dir / "metrics.csv");
    CHECK(desk.writer.close());
    CHECK(desk.table() == "step,time,attempt,loss\n0,1.5,0,0\n1,1.5,0,1\n2,1.5,0,2\n");
  }
  CHECK(desk.warned() == 1);
}

TEST_CASE("a failure at the end is returned by close()") {
  Desk desk;
  std::filesystem::create_directory(desk.dir / "metrics.csv");
  desk.writer.append(report(0, {{"loss", 0}}));
  auto closed = desk.writer.close();
  REQUIRE_FALSE(closed);
  CHECK(closed.error().message().find("metrics.csv") != std::string::npos);
  CHECK(desk.warned() == 0);
}

}  // namespace metrics_writer_test
