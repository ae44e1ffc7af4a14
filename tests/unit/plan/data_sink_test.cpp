#include "trireme/data_sink.h"

#include <doctest/doctest.h>

#include <numeric>

#include "trireme/context.h"
#include "trireme/data_source.h"
#include "unit/error_of.h"

namespace data_sink_test {

using trireme::Batch;
using trireme::DataBlocks;
using trireme::DataColumn;
using trireme::Dict;
using trireme::Value;
using trireme::WriteResult;
using trireme::tests::error_of;
namespace data = trireme::data;

namespace {

class Recording : public trireme::DataSink {
 public:
  std::string name() const override { return "recording"; }
  void on_write_start(const std::vector<DataColumn>& given) override {
    CHECK(calls.empty());
    for (const auto& each : given) columns.push_back(each.name + ": " + each.type);
  }
  Value write(DataBlocks& blocks, std::int64_t task_idx) override {
    CHECK(task_idx == std::ssize(calls));
    calls.emplace_back();
    for (std::int64_t batches = 0; batches != most_batches; ++batches) {
      const auto batch = blocks.next();
      if (!batch) break;
      for (auto id : (*batch)["id"].values<std::int64_t>()) calls.back().push_back(id);
    }
    if (std::ssize(calls) == fails_in_call) throw std::out_of_range("the disk is full");
    return task_idx * 10;
  }
  void on_write_complete(const WriteResult& given) override { result = given; }
  void on_write_failed(const std::exception& error) override { failures.emplace_back(error.what()); }
  bool supports_distributed_writes() const override { return distributed; }
  std::optional<std::int64_t> min_rows_per_write() const override { return min_rows; }

  std::vector<std::int64_t> all() const {
    std::vector<std::int64_t> ids;
    for (const auto& call : calls) ids.insert(ids.end(), call.begin(), call.end());
    return ids;
  }

  bool distributed = true;
  std::optional<std::int64_t> min_rows;
  std::int64_t most_batches = -1;  // that a call requests
  std::int64_t fails_in_call = 0;
  std::vector<std::string> columns;
  std::vector<std::vector<std::int64_t>> calls;
  std::optional<WriteResult> result;
  std::vector<std::string> failures;
};

std::vector<std::int64_t> up_to(std::int64_t end) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(end));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

std::vector<std::size_t> sizes(const Recording& sink) {
  std::vector<std::size_t> found;
  for (const auto& call : sink.calls) found.push_back(call.size());
  return found;
}

// Its second fragment cannot be read.
class Broken final : public trireme::DataSource {
 public:
  std::string name() const override { return "broken"; }
  std::vector<trireme::DataFragment> list() override { return {{"first", 3, 24}, {"second", 3, 24}}; }
  std::int64_t open(std::size_t fragment, std::int64_t, ArrowArrayStream* stream) override {
    if (fragment == 1) throw std::runtime_error("the sensor is off");
    data::range(3).export_to(stream);
    return 0;
  }
};

}  // namespace

TEST_CASE("a sink gets the rows in order, and what it returns") {
  Recording sink;
  data::write_datasink(
      data::range(1000).repartition(7).filter([](const Dict& row) { return row["id"].as_int() < 900; }), sink);
  CHECK(sink.columns == std::vector<std::string>{"id: int64"});
  CHECK(sink.calls.size() == 1);
  CHECK(sink.all() == up_to(900));
  REQUIRE(sink.result);
  CHECK(sink.result->num_rows == 900);
  CHECK(sink.result->size_bytes == 900 * 8);
  CHECK(sink.result->write_returns.size() == 1);
  CHECK(sink.failures.empty());
}

TEST_CASE("each call gets exactly the rows that the sink asks for, the last one the rest") {
  Recording sink;
  sink.min_rows = 300;
  data::write_datasink(data::range(1000).repartition(7), sink);
  CHECK(sizes(sink) == std::vector<std::size_t>{300, 300, 300, 100});
  CHECK(sink.all() == up_to(1000));
  REQUIRE(sink.result);
  CHECK(sink.result->write_returns.back().as_int() == 30);

  Recording large;  // more rows than are read at once
  large.min_rows = 100003;
  data::write_datasink(data::range(250000), large);
  CHECK(sizes(large) == std::vector<std::size_t>{100003, 100003, 49994});
  CHECK(large.all() == up_to(250000));
}

TEST_CASE("a sink that does not support distributed writes gets one call") {
  Recording sink;
  sink.distributed = false;
  sink.min_rows = 10;
  data::write_datasink(data::range(1000), sink);
  CHECK(sizes(sink) == std::vector<std::size_t>{1000});
}

TEST_CASE("without rows there is one call, and the columns are known") {
  Recording sink;
  data::write_datasink(data::range(10).limit(0), sink);
  CHECK(sink.columns == std::vector<std::string>{"id: int64"});
  CHECK(sizes(sink) == std::vector<std::size_t>{0});
  REQUIRE(sink.result);
  CHECK(sink.result->num_rows == 0);
}

TEST_CASE("rows that a call does not request are skipped") {
  Recording sink;
  sink.min_rows = 4;
  sink.most_batches = 0;
  data::write_datasink(data::range(10), sink);
  CHECK(sizes(sink) == std::vector<std::size_t>{0, 0, 0});
  REQUIRE(sink.result);
  CHECK(sink.result->num_rows == 10);
}

TEST_CASE("a shuffled dataset arrives in the order in which it is read") {
  const auto shuffled = data::range(500).random_shuffle({.seed = 3});
  std::vector<std::int64_t> expected;
  for (const auto& row : shuffled.take_all()) expected.push_back(row["id"].as_int());
  Recording sink;
  sink.min_rows = 7;
  data::write_datasink(shuffled, sink);
  CHECK(sink.all() == expected);
  CHECK(sink.all() != up_to(500));
}

TEST_CASE("a sink hears of its failures, which are thrown") {
  Recording sink;
  sink.min_rows = 10;
  sink.fails_in_call = 2;
  CHECK_THROWS_AS(data::write_datasink(data::range(100), sink), std::out_of_range);
  CHECK(sink.failures == std::vector<std::string>{"the disk is full"});
  CHECK(sink.calls.size() == 2);
  CHECK(!sink.result);
}

TEST_CASE("a sink hears that reading failed") {
  Recording sink;
  const auto error = error_of([&] { data::write_datasink(data::from_source(std::make_shared<Broken>()), sink); });
  CHECK(error.find("the sensor is off") != std::string::npos);
  REQUIRE(sink.failures.size() == 1);
  CHECK(sink.failures[0] == error);
  CHECK(!sink.result);
}

TEST_CASE("an invalid number of rows is an error before anything starts") {
  Recording sink;
  sink.min_rows = 0;
  CHECK_THROWS_AS(data::write_datasink(data::range(3), sink), trireme::ValueError);
  CHECK(sink.columns.empty());
}

}  // namespace data_sink_test
