#include "control/run_folder.h"

#include <doctest/doctest.h>

#include "base/json.h"
#include "checkpoint/commit.h"
#include "storage/local_files.h"
#include "storage/remote_files.h"
#include "unit/folder_file_system.h"
#include "unit/temp_dir.h"

namespace run_folder_test {

using namespace trireme::control;
using trireme::Dict;
using trireme::tests::append_file;
using trireme::tests::TempDir;

namespace {

constexpr const char* kRun = R"({"format":1,"name":"digits","id":"aa11","created":100.0})";
constexpr const char* kBegin =
    R"({"time":100.0,"event":"run_started","name":"digits","num_workers":2}
{"time":100.1,"event":"attempt_started","attempt":0,"num_workers":2}
{"time":101.0,"event":"report","attempt":0,"rank":0,"index":0,"metrics":{"loss":{"$float":"nan"}}}
{"time":101.0,"event":"report","attempt":0,"rank":1,"index":0,"metrics":{"loss":7}}
{"time":101.5,"event":"checkpoint_committed","attempt":0,"index":0,"name":"checkpoint_000000"}
{"time":102.0,"event":"report","attempt":0,"rank":0,"index":1,"metrics":{"loss":0.5}}
)";

RunRecord record_of(const std::string& events) {
  TempDir dir;
  append_file(dir / "run.json", kRun);
  append_file(dir / "events.jsonl", events);
  auto record = read_run(dir.path());
  REQUIRE(record);
  return *std::move(record);
}

}  // namespace

TEST_CASE("a run that is running") {
  RunRecord record = record_of(kBegin);
  CHECK_FALSE(record.torn);
  CHECK(record.events.size() == 6);
  RunSummary told = summary(record, true, 110.0);
  CHECK(told.name == "digits");
  CHECK(told.id == "aa11");
  CHECK(told.state == "running");
  CHECK(told.num_workers == 2);
  CHECK(told.attempts == 1);
  CHECK(told.reports.count() == 2);
  CHECK(told.checkpoints == 1);
  CHECK(told.seconds == 10.0);
  CHECK(told.last_metrics.at("loss") == trireme::Value(0.5));
  CHECK_FALSE(told.error);
}

TEST_CASE("a run whose driver died") {
  RunSummary told = summary(record_of(kBegin), false, 1000.0);
  CHECK(told.state == "lost");
  CHECK(told.seconds == 2.0);  // up to its last event
}

TEST_CASE("a run that failed, and was continued") {
  std::string failed =
      std::string(kBegin) +
      R"({"time":103.0,"event":"run_finished","outcome":"failed","seconds":3.0,"error":"rank 1 died"})" + "\n";
  RunSummary told = summary(record_of(failed), false, 1000.0);
  CHECK(told.state == "failed");
  CHECK(told.seconds == 3.0);
  CHECK(told.error.value() == "rank 1 died");

  std::string continued = failed + R"({"time":200.0,"event":"run_started","num_workers":4,"resumed":true})" + "\n";
  told = summary(record_of(continued), true, 205.0);
  CHECK(told.state == "running");
  CHECK(told.seconds == 5.0);
  CHECK(told.num_workers == 4);
  CHECK_FALSE(told.error);
}

TEST_CASE("the reports of all ranks, without those repeated by a restart") {
  const std::string events = std::string(kBegin) +
                             R"({"time":103.0,"event":"report","attempt":1,"rank":0,"index":1,"metrics":{"loss":0.25}}
{"time":104.0,"event":"report","attempt":1,"rank":1,"index":1,"metrics":{"loss":9}}
{"time":105.0,"event":"report","attempt":1,"rank":0,"index":2,"metrics":{"loss":0.125}}
)";
  const RunRecord record = record_of(events);
  const auto rows = metrics_of_all_ranks(record);
  std::vector<std::pair<std::int64_t, std::int64_t>> order;
  for (const auto& row : rows) order.emplace_back(row.at("index").as_int(), row.at("rank").as_int());
  CHECK(order == decltype(order){{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}});
  CHECK(rows[2] == Dict{{"rank", 0}, {"index", 1}, {"attempt", 1}, {"time", 103.0}, {"metrics", Dict{{"loss", 0.25}}}});
  const auto history = metrics_history(record);
  REQUIRE(history.size() == 3);
  CHECK(history[1] == Dict{{"loss", 0.25}});
  CHECK(history[2] == Dict{{"loss", 0.125}});
  // A restart from an earlier checkpoint discards later reports.
  const auto undone = metrics_history(record_of(
      events + R"({"time":106.0,"event":"report","attempt":2,"rank":0,"index":0,"metrics":{"loss":7}})" + "\n"));
  CHECK(undone == std::vector<trireme::Metrics>{Dict{{"loss", 7}}});
  CHECK(summary(record, true, 110.0).reports.count() == 3);
}

TEST_CASE("the checkpoints of a run are ranked as it was configured") {
  TempDir dir;
  trireme::storage::LocalFiles files;
  auto commit = [&](std::int64_t index, double loss) {
    trireme::checkpoint::Manifest manifest;
    manifest.index = index;
    manifest.metrics = {{"loss", loss}};
    std::filesystem::create_directories(dir / trireme::checkpoint::default_name(index));
    REQUIRE(trireme::checkpoint::commit(files, dir.path(), trireme::checkpoint::default_name(index), manifest));
  };
  commit(0, 1.0);
  commit(1, 3.0);
  commit(2, 2.0);
  append_file(dir / "checkpoint_000003/.trireme_manifest.json", "{");
  auto names = [&](const std::string& run_config, std::vector<std::string>* damaged = nullptr) {
    RunRecord record;
    record.path = dir.path();
    record.run = *trireme::base::parse_json_dict(run_config);
    auto kept = read_checkpoints(files, record, damaged);
    REQUIRE(kept);
    std::string all;
    for (const auto& each : *kept) all += std::to_string(each.index);
    return all;
  };
  std::vector<std::string> damaged;
  CHECK(names("{}", &damaged) == "012");
  REQUIRE(damaged.size() == 1);
  CHECK(damaged[0].find("checkpoint_000003") != std::string::npos);
  const std::string score = R"("checkpoint_score_attribute":"loss","checkpoint_score_order":)";
  CHECK(names(R"({"run_config":{"checkpoint_config":{)" + score + R"("max"}}})") == "021");
  CHECK(names(R"({"run_config":{"checkpoint_config":{)" + score + R"("min"}}})") == "120");
  // A file of another version must not hide the rest.
  CHECK(names(R"({"run_config":{"checkpoint_config":{"unheard_of":1}}})") == "012");
}

TEST_CASE("the return value") {
  TempDir dir;
  trireme::storage::LocalFiles files;
  auto read = [&](const std::string& last_event) {
    RunRecord record = record_of(std::string(kBegin) + last_event + "\n");
    record.path = dir.path();
    return read_return_value(files, record);
  };
  CHECK(read("").value() == ReturnValue{});
  CHECK(read(R"({"event":"run_finished","outcome":"failed"})").value() == ReturnValue{});
  CHECK(read(R"({"event":"run_finished","outcome":"finished","return_value":[1,"b"]})").value() ==
        ReturnValue{trireme::List{1, "b"}});
  const std::string pickled = R"({"event":"run_finished","outcome":"finished","return_value_pickled":true})";
  CHECK_FALSE(read(pickled));
  append_file(dir / "return_value.pkl", "pickle");
  CHECK(read(pickled).value() == ReturnValue{trireme::Bytes{"pickle"}, true});
}

TEST_CASE("a run folder in remote storage") {
  TempDir far;
  auto file_system = std::make_shared<trireme::tests::FolderFileSystem>(far.path());
  trireme::storage::RemoteFiles files(file_system, "far");
  CHECK(read_run(files, "bucket/run").error().message() == "far://bucket/run is not a run folder: it has no run.json");
  file_system->write("bucket/run/run.json", kRun);
  auto fresh = read_run(files, "bucket/run");
  REQUIRE(fresh);
  CHECK(fresh->events.empty());
  file_system->write("bucket/run/events.jsonl", kBegin);
  auto record = read_run(files, "bucket/run");
  REQUIRE(record);
  CHECK(record->events.size() == 6);
  CHECK(record->path == "bucket/run");
}

TEST_CASE("an incomplete line is skipped and noted") {
  RunRecord record = record_of(std::string(kBegin) + R"({"time":103.0,"eve)");
  CHECK(record.torn);
  CHECK(record.events.size() == 6);
  // A driver that started after the crash appended to the torn line.
  record = record_of(std::string(kBegin) + "{\"time\":103.0,\"eve\n" + R"({"time":104,"event":"run_started"})" + "\n");
  CHECK(record.torn);
  CHECK(record.events.size() == 7);
  // The last line lacks only its newline.
  record = record_of(R"({"time":104,"event":"run_started"})");
  CHECK_FALSE(record.torn);
  CHECK(record.events.size() == 1);
}

TEST_CASE("folders that are not run folders are refused with a reason") {
  TempDir dir;
  CHECK(read_run(dir / "absent").error().message().find("does not exist") != std::string::npos);
  CHECK(read_run(dir.path()).error().message().find("it has no run.json") != std::string::npos);
  append_file(dir / "damaged/run.json", "{");
  CHECK(read_run(dir / "damaged").error().message().find("is damaged") != std::string::npos);
  append_file(dir / "newer/run.json", R"({"format":99})");
  CHECK(read_run(dir / "newer").error().message().find("upgrade") != std::string::npos);
  append_file(dir / "fresh/run.json", kRun);
  auto fresh = read_run(dir / "fresh");
  REQUIRE(fresh);
  CHECK(fresh->events.empty());
}

TEST_CASE("logs are listed by attempt and rank") {
  TempDir dir;
  CHECK(log_files(dir.path()).empty());
  for (const char* name : {"logs/attempt_10/rank_0.log", "logs/attempt_2/rank_10.log", "logs/attempt_2/rank_9.log",
                           "logs/attempt_2/notes.txt", "logs/attempt_2/rank_x.log", "logs/other/rank_0.log"}) {
    append_file(dir / name, "x");
  }
  auto files = log_files(dir.path());
  REQUIRE(files.size() == 3);
  CHECK(files[0].attempt == 2);
  CHECK(files[0].rank == 9);
  CHECK(files[1].rank == 10);
  CHECK(files[2].attempt == 10);
}

}  // namespace run_folder_test
