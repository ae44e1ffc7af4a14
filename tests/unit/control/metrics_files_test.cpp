#include "control/metrics_files.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>
#include <limits>

#include "base/json.h"
#include "storage/local_files.h"
#include "unit/temp_dir.h"

namespace metrics_files_test {

using namespace trireme;
using trireme::control::MetricsFiles;
using trireme::tests::append_file;
using trireme::tests::TempDir;

namespace {

// As in the event log.
Dict report(std::int64_t index, Metrics metrics, int attempt = 0) {
  Dict event{{"time", 100.5}, {"event", "report"}, {"attempt", attempt}, {"rank", 0}, {"index", index}};
  event["metrics"] = std::move(metrics);
  return event;
}

std::string content(const TempDir& dir, const char* name) {
  auto text = storage::read_file(dir / name);
  REQUIRE(text);
  return *std::move(text);
}

// One start of the run with these reports.
void write(const TempDir& dir, const std::vector<Dict>& reports) {
  MetricsFiles files(dir.path());
  for (const auto& each : reports) files.append(each);
  auto flushed = files.flush();
  REQUIRE_MESSAGE(flushed, (flushed ? "" : flushed.error().message()));
}

}  // namespace

TEST_CASE("reports become lines and rows") {
  TempDir dir;
  MetricsFiles files(dir.path());
  REQUIRE(files.flush());
  CHECK_FALSE(std::filesystem::exists(dir / "metrics.csv"));
  files.append(report(0, {{"loss", 0.5}, {"eval", Dict{{"acc", 1}, {"top", Dict{{"5", true}}}}}}));
  REQUIRE(files.flush());
  files.append(report(1, {{"loss", 0.25}, {"eval", Dict{{"acc", 2}, {"top", Dict{{"5", false}}}}}}));
  REQUIRE(files.flush());
  REQUIRE(files.flush());
  CHECK(content(dir, "metrics.csv") ==
        "step,time,attempt,loss,eval/acc,eval/top/5\n"
        "0,100.5,0,0.5,1,true\n"
        "1,100.5,0,0.25,2,false\n");
  CHECK(content(dir, "metrics.jsonl") ==
        R"({"step":0,"time":100.5,"attempt":0,"loss":0.5,"eval":{"acc":1,"top":{"5":true}}})"
        "\n"
        R"({"step":1,"time":100.5,"attempt":0,"loss":0.25,"eval":{"acc":2,"top":{"5":false}}})"
        "\n");
}

TEST_CASE("cells with separators are quoted") {
  TempDir dir;
  write(dir, {report(0, {{"a,b", "x,y"}, {"say \"hi\"", "\"quoted\""}, {"line", "one\ntwo"}, {"list", List{1, "b"}}})});
  CHECK(content(dir, "metrics.csv") ==
        "step,time,attempt,\"a,b\",\"say \"\"hi\"\"\",line,list\n"
        "0,100.5,0,\"x,y\",\"\"\"quoted\"\"\",\"one\ntwo\",\"[1,\"\"b\"\"]\"\n");
}

TEST_CASE("special values") {
  TempDir dir;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  write(dir, {report(0, {{"nan", nan}, {"up", infinity}, {"down", -infinity}, {"none", nullptr}, {"empty", ""}})});
  CHECK(content(dir, "metrics.csv") == "step,time,attempt,nan,up,down,none,empty\n0,100.5,0,nan,inf,-inf,,\n");
  // Our parser can read every line, and NaN is restored.
  auto line = base::parse_json_dict(content(dir, "metrics.jsonl"));
  REQUIRE(line);
  CHECK(std::isnan((*line)["nan"].as_double()));
}

TEST_CASE("step, time and attempt are ours") {
  TempDir dir;
  write(dir, {report(3, {{"step", 99}, {"time", "late"}, {"loss", 1}})});
  CHECK(content(dir, "metrics.csv") == "step,time,attempt,loss\n3,100.5,0,1\n");
  CHECK(content(dir, "metrics.jsonl") == "{\"step\":3,\"time\":100.5,\"attempt\":0,\"loss\":1}\n");
}

TEST_CASE("a new metric adds a column, and rows without it have an empty cell") {
  TempDir dir;
  MetricsFiles files(dir.path());
  files.append(report(0, {{"loss", 1}, {"note", "two\nlines, \"quoted\""}}));
  REQUIRE(files.flush());
  files.append(report(1, {{"loss", 2}}));
  files.append(report(2, {{"eval", Dict{{"acc", 3}}}, {"lr", 0.5}}));
  REQUIRE(files.flush());
  CHECK(content(dir, "metrics.csv") ==
        "step,time,attempt,loss,note,eval/acc,lr\n"
        "0,100.5,0,1,\"two\nlines, \"\"quoted\"\"\",,\n"
        "1,100.5,0,2,,,\n"
        "2,100.5,0,,,3,0.5\n");
}

TEST_CASE("a resumed run continues the table, whatever its columns are called") {
  TempDir dir;
  const Metrics odd{{"a,b", 1}, {"say \"hi\"", 2}, {"two\nlines", 3}};
  write(dir, {report(0, odd)});
  const std::string before = content(dir, "metrics.csv");
  write(dir, {report(1, odd, 1)});
  CHECK(content(dir, "metrics.csv") == before + "1,100.5,1,1,2,3\n");
  write(dir, {report(2, {{"new", 4}}, 2)});
  CHECK(content(dir, "metrics.csv") ==
        "step,time,attempt,\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\",new\n"
        "0,100.5,0,1,2,3,\n"
        "1,100.5,1,1,2,3,\n"
        "2,100.5,2,,,,4\n");
}

TEST_CASE("an incomplete line of a dead driver swallows nothing") {
  TempDir dir;
  write(dir, {report(0, {{"loss", 1}})});
  append_file(dir / "metrics.csv", "1,100.5,0");
  append_file(dir / "metrics.jsonl", "{\"step\":1,");
  write(dir, {report(1, {{"loss", 2}}, 1)});
  CHECK(content(dir, "metrics.csv") == "step,time,attempt,loss\n0,100.5,0,1\n1,100.5,0\n1,100.5,1,2\n");
  CHECK(
      content(dir, "metrics.jsonl").ends_with("{\"step\":1,\n{\"step\":1,\"time\":100.5,\"attempt\":1,\"loss\":2}\n"));
}

TEST_CASE("nothing is lost or written twice if the disk was full for a while") {
  TempDir dir;
  MetricsFiles files(dir.path());
  files.append(report(0, {{"loss", 1}}));
  REQUIRE(files.flush());
  // Simulates a full disk: files may not grow beyond some bytes.
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  auto* old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small{60, before.rlim_max};  // the lines have more, the table has room
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  files.append(report(1, {{"loss", 2}}));
  auto failed = files.flush();
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, old_handler);
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message().find("could not write " + (dir / "metrics.jsonl")) != std::string::npos);
  REQUIRE(files.flush());
  CHECK(content(dir, "metrics.csv") == "step,time,attempt,loss\n0,100.5,0,1\n1,100.5,0,2\n");
  CHECK(content(dir, "metrics.jsonl") ==
        "{\"step\":0,\"time\":100.5,\"attempt\":0,\"loss\":1}\n{\"step\":1,\"time\":100.5,\"attempt\":0,\"loss\":2}\n");
}

TEST_CASE("a missing folder is reported") {
  TempDir dir;
  MetricsFiles files(dir / "absent");
  files.append(report(0, {}));
  auto failed = files.flush();
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message().find("absent/metrics.jsonl") != std::string::npos);
}

}  // namespace metrics_files_test
