#include "data/pipeline.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>

#include "rows.h"

namespace pipeline_test {

using namespace trireme;
using namespace trireme::data;
using tests::RowSource;

namespace {

PipelineOptions batches_of(std::int64_t rows) {
  PipelineOptions options;
  options.cutting.batch_rows = rows;
  return options;
}

std::unique_ptr<Pipeline> started(const std::shared_ptr<RowSource>& source, PipelineOptions options) {
  options.layout.fragment_rows.clear();
  for (const auto& each : source->fragments()) options.layout.fragment_rows.push_back(each.rows);
  auto made = Pipeline::start(source->fragments(), source, options);
  REQUIRE(made);
  return *std::move(made);
}

struct Ended {
  std::vector<std::int64_t> rows;
  std::string error;
};

Ended drained(Pipeline& pipeline) {
  Ended ended;
  while (true) {
    auto next = pipeline.next(std::chrono::seconds(60));
    if (!next) {
      ended.error = next.error().message();
      return ended;
    }
    if (next->state != Next::State::kBatch) return ended;
    const auto rows = tests::rows_in(*next->batch);
    ended.rows.insert(ended.rows.end(), rows.begin(), rows.end());
  }
}

}  // namespace

TEST_CASE("rows arrive in order, in exact batches, across chunks and fragments") {
  auto source = std::make_shared<RowSource>(std::vector<std::int64_t>{10, 1, 0, 17}, 4);
  auto pipeline = started(source, batches_of(6));
  CHECK(pipeline->steps() == 5);
  std::vector<std::int64_t> sizes, rows;
  while (true) {
    auto next = pipeline->next(std::chrono::seconds(60));
    REQUIRE(next);
    if (next->state != Next::State::kBatch) break;
    sizes.push_back(next->batch->rows());
    const auto here = tests::rows_in(*next->batch);
    rows.insert(rows.end(), here.begin(), here.end());
  }
  CHECK(sizes == std::vector<std::int64_t>{6, 6, 6, 6, 4});
  for (std::int64_t i = 0; i < 28; ++i) CHECK(rows[static_cast<std::size_t>(i)] == i);
  CHECK(pipeline->stats().rows == 28);
  CHECK(pipeline->stats().batches == 5);
}

TEST_CASE("temporary failures are retried where they occurred; permanent ones are reported") {
  auto source = std::make_shared<RowSource>(std::vector<std::int64_t>{30, 30}, 5);
  std::mutex mutex;
  std::set<std::size_t> failed;
  source->fault_of = [&](std::size_t fragment) -> tests::StreamFault {
    std::lock_guard lock(mutex);
    if (!failed.insert(fragment).second) return {};
    return {.after_chunks = 3};
  };
  PipelineOptions options = batches_of(7);
  options.read_retries = 2;
  options.retry_pause = std::chrono::duration<double>(0);
  auto pipeline = started(source, options);
  auto ended = drained(*pipeline);
  CHECK(ended.error == "");
  CHECK(ended.rows.size() == 60);
  for (std::size_t i = 0; i < 60; ++i) CHECK(ended.rows[i] == static_cast<std::int64_t>(i));
  CHECK(pipeline->stats().retries == 2);

  source->fault_of = [](std::size_t fragment) -> tests::StreamFault {
    if (fragment == 0) return {};
    return {.after_chunks = 0};
  };
  pipeline = started(source, options);
  CHECK(drained(*pipeline).error == "could not read part-1: the store does not answer");
  CHECK(drained(*pipeline).error == "could not read part-1: the store does not answer");
  options.read_retries = 0;
  CHECK(drained(*started(source, options)).error.find("part-1") != std::string::npos);
}

TEST_CASE("a fragment with the wrong number of rows is an error that names it") {
  PipelineOptions options = batches_of(4);
  options.threads = 1;  // otherwise the second fragment, which is wrong too, may be found first
  auto longer = std::make_shared<RowSource>(std::vector<std::int64_t>{10, 10}, 4);
  longer->more = 3;
  CHECK(drained(*started(longer, options)).error.find("part-0 has more rows than the 10") != std::string::npos);
  auto shorter = std::make_shared<RowSource>(std::vector<std::int64_t>{10, 10}, 4);
  shorter->more = -3;
  CHECK(drained(*started(shorter, options)).error.find("part-0 ends after 7 rows, but 10 were counted") !=
        std::string::npos);
}

TEST_CASE("resuming reads only the rest") {
  auto source = std::make_shared<RowSource>(std::vector<std::int64_t>(100, 10), 10);
  PipelineOptions options = batches_of(15);
  options.begin = 955;
  auto pipeline = started(source, options);
  auto ended = drained(*pipeline);
  CHECK(ended.rows.size() == 45);
  CHECK(ended.rows.front() == 955);
  CHECK(source->opened == 5);
}

TEST_CASE("memory stays within the budget") {
  auto source = std::make_shared<RowSource>(std::vector<std::int64_t>(200, 1000), 100);  // chunks of 800 bytes
  PipelineOptions options = batches_of(50);
  options.threads = 3;
  options.memory_budget = 20'000;
  auto pipeline = started(source, options);
  REQUIRE(pipeline->next(std::chrono::seconds(60)));
  auto ended = drained(*pipeline);
  CHECK(ended.rows.size() == 199'950);
  CHECK(pipeline->stats().peak_bytes <= 20'000);
  CHECK(pipeline->stats().held_bytes == 0);
}

namespace {

// Counts concurrently open streams.
class CountingSource final : public Source {
 public:
  explicit CountingSource(std::shared_ptr<RowSource> rows) : rows_(std::move(rows)) {}

  base::Result<Opened> open(std::size_t fragment, std::int64_t row, std::int64_t end) override {
    TRIREME_ASSIGN(Opened opened, rows_->open(fragment, row, end));
    auto* open = new OpenStream{std::move(opened.stream), this};
    ArrowArrayStream stream{};
    stream.private_data = open;
    stream.get_schema = [](ArrowArrayStream* self, ArrowSchema* out) {
      return inner(self)->get_schema(inner(self), out);
    };
    stream.get_next = [](ArrowArrayStream* self, ArrowArray* out) { return inner(self)->get_next(inner(self), out); };
    stream.get_last_error = [](ArrowArrayStream* self) { return inner(self)->get_last_error(inner(self)); };
    stream.release = [](ArrowArrayStream* self) {
      const std::unique_ptr<OpenStream> ended(static_cast<OpenStream*>(self->private_data));
      --ended->source->open_;
      self->release = nullptr;
    };
    opened.stream = OwnedStream(stream);
    const int now = ++open_;
    int most = most_;
    while (now > most && !most_.compare_exchange_weak(most, now)) continue;
    return opened;
  }

  int most() const { return most_; }
  int now() const { return open_; }

 private:
  struct OpenStream {
    OwnedStream stream;
    CountingSource* source;
  };
  static ArrowArrayStream* inner(ArrowArrayStream* self) {
    return &*static_cast<OpenStream*>(self->private_data)->stream;
  }

  std::shared_ptr<RowSource> rows_;
  std::atomic<int> open_ = 0;
  std::atomic<int> most_ = 0;
};

}  // namespace

TEST_CASE("decoders count: without memory no second one is opened, and rows get the rest") {
  auto rows = std::make_shared<RowSource>(std::vector<std::int64_t>(100, 1000), 100);  // chunks of 800 bytes
  PipelineOptions options = batches_of(50);
  options.threads = 3;
  options.memory_budget = 100'000;
  options.layout.fragment_rows = std::vector<std::int64_t>(100, 1000);
  const auto run = [&](std::int64_t decoding_bytes) {
    options.decoding_bytes = decoding_bytes;
    auto source = std::make_shared<CountingSource>(rows);
    auto pipeline = Pipeline::start(rows->fragments(), source, options);
    REQUIRE(pipeline);
    CHECK(drained(**pipeline).rows.size() == 100'000);
    CHECK(source->now() == 0);
    return std::pair{source->most(), (*pipeline)->stats().peak_bytes};
  };
  const auto [few, little] = run(45'000);
  CHECK(few == 1);
  CHECK(little <= 20'000);
  const auto [alone, least] = run(10'000'000);  // continues nevertheless
  CHECK(alone == 1);
  CHECK(least <= 20'000);
}

TEST_CASE("small batches of a large dataset start quickly") {
  // As many steps as rows: visiting each of them in advance would take minutes.
  auto source = std::make_shared<RowSource>(std::vector<std::int64_t>(3, 1'000'000), 65536);
  auto pipeline = started(source, batches_of(1));
  CHECK(pipeline->steps() == 3'000'000);
  for (int i = 0; i < 1000; ++i) {
    auto next = pipeline->next(std::chrono::seconds(60));
    REQUIRE(next->state == Next::State::kBatch);
    CHECK(tests::rows_in(*next->batch) == std::vector<std::int64_t>{i});
  }
}

TEST_CASE("a window that exceeds the budget is rejected with its size") {
  auto source = std::make_shared<RowSource>(std::vector<std::int64_t>{1 << 20}, 1 << 16);
  PipelineOptions options = batches_of(50);
  options.memory_budget = 1 << 20;
  options.layout.window_rows = 1 << 20;
  options.layout.fragment_rows = {1 << 20};
  auto refused = Pipeline::start(source->fragments(), source, options);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message().find("needs about 8 MiB, but the memory budget is 1 MiB") != std::string::npos);
}

TEST_CASE("a pipeline that is not drained stops at once") {
  auto source = std::make_shared<RowSource>(std::vector<std::int64_t>(50, 1000), 10);
  for (int i = 0; i < 20; ++i) {
    auto pipeline = started(source, batches_of(64));
    if (i % 2) REQUIRE(pipeline->next(std::chrono::seconds(60)));
  }
}

namespace {

// Fragment 1 has a different type.
class MixedSource final : public Source {
 public:
  base::Result<Opened> open(std::size_t fragment, std::int64_t, std::int64_t) override {
    if (fragment == 0) return Opened{OwnedStream(tests::make_stream({tests::int64_column("x", {1, 2})}, 2))};
    return Opened{OwnedStream(tests::make_stream({tests::double_column("x", {3, 4})}, 2))};
  }
};

}  // namespace

TEST_CASE("an exception of a source is reported as an error, and nothing hangs") {
  class ThrowingSource final : public Source {
   public:
    base::Result<Opened> open(std::size_t, std::int64_t, std::int64_t) override { throw std::bad_alloc(); }
  };
  PipelineOptions options = batches_of(1);
  options.layout.fragment_rows = {2};
  auto pipeline = Pipeline::start({{"a", 2, 16}}, std::make_shared<ThrowingSource>(), options);
  REQUIRE(pipeline);
  auto next = (*pipeline)->next(std::chrono::seconds(60));
  REQUIRE_FALSE(next);
  CHECK(next.error().message().find("reading data failed") != std::string::npos);
}

TEST_CASE("a fragment with different columns is reported with the column and both types") {
  PipelineOptions options = batches_of(1);
  options.threads = 1;  // otherwise either of them may be the first
  options.layout.fragment_rows = {2, 2};
  auto pipeline = Pipeline::start({{"a", 2, 16}, {"b", 2, 16}}, std::make_shared<MixedSource>(), options);
  REQUIRE(pipeline);
  std::string error;
  while (error.empty()) {
    auto next = (*pipeline)->next(std::chrono::seconds(60));
    if (!next) error = next.error().message();
    if (next && next->state == Next::State::kEnd) break;
  }
  CHECK(error == "could not read b: column 'x' is double, but int64 in the others");
}

}  // namespace pipeline_test
