#include "plan/plan.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "base/text.h"
#include "data/stream.h"
#include "plan/read.h"
#include "plan/record.h"
#include "storage/digest.h"

namespace trireme {

std::shared_ptr<DataSource> DataSource::with_columns(const std::vector<std::string>&) { return nullptr; }
std::shared_ptr<DataSource> DataSource::with_conditions(const std::vector<DataCondition>&) { return nullptr; }

namespace plan {
namespace {

constexpr std::size_t kCountingThreads = 4;

// Exception boundary: sources belong to the program or a library.
template <typename F>
auto called(const std::string& what, F call) -> base::Result<decltype(call())> {
  try {
    return call();
  } catch (const std::exception& thrown) {
    return base::error("{}: {}", what, thrown.what());
  }
}

class PlanSource final : public data::Source {
 public:
  explicit PlanSource(std::shared_ptr<Plan> plan) : plan_(std::move(plan)) {}
  base::Result<data::Opened> open(std::size_t fragment, std::int64_t row, std::int64_t end) override {
    return plan_->open(fragment, row, end);
  }
  std::int64_t revision() override { return plan_->revision(); }

 private:
  std::shared_ptr<Plan> plan_;  // shared with the dataset
};

class StreamInput final : public Input {
 public:
  StreamInput(OwnedStream stream, std::shared_ptr<const data::Schema> schema, std::int64_t skip)
      : stream_(std::move(stream), common_), schema_(std::move(schema)), skip_(skip) {}

  const std::shared_ptr<const data::Schema>& schema() const override { return schema_; }
  bool may_pass() const override { return may_pass_; }

  base::Result<data::Batch> next(std::int64_t rows) override {
    std::vector<std::shared_ptr<const data::Chunk>> chunks;
    std::vector<data::Run> runs;
    for (std::int64_t missing = rows; rows == 0 ? runs.empty() : missing > 0;) {
      TRIREME_ASSIGN(const bool there, has_rows());
      if (!there) break;
      const std::int64_t left = chunk_->rows() - row_;
      const std::int64_t count = rows == 0 ? left : std::min(missing, left);
      runs.push_back({static_cast<std::uint32_t>(chunks.size()), row_, count});
      chunks.push_back(chunk_);
      row_ += count;
      missing -= count;
    }
    if (runs.empty()) return data::Batch::empty(schema_);
    return data::Batch::gather(chunks, runs);
  }

 private:
  base::Result<bool> has_rows() {
    while (!chunk_ || row_ == chunk_->rows()) {
      std::optional<data::Stream::Failure> failure;
      chunk_ = stream_.next(failure);
      if (failure) {
        may_pass_ = failure->may_pass;
        return failure->error;
      }
      if (!chunk_) return false;
      row_ = std::min(skip_, chunk_->rows());
      skip_ -= row_;
    }
    return true;
  }

  data::CommonSchema common_;
  data::Stream stream_;
  std::shared_ptr<const data::Schema> schema_;
  std::int64_t skip_;  // rows before the requested one
  std::shared_ptr<const data::Chunk> chunk_;
  std::int64_t row_ = 0;
  bool may_pass_ = false;
};

base::Result<std::shared_ptr<const data::Schema>> schema_of(OwnedStream& stream) {
  OwnedSchema schema;
  if (stream->get_schema(&*stream, &*schema) != 0) {
    const char* told = stream->get_last_error(&*stream);
    return base::error("{}", told ? told : "its columns cannot be read");
  }
  return data::Schema::take(std::move(schema));
}

}  // namespace

std::unique_ptr<Input> stream_input(OwnedStream stream, std::shared_ptr<const data::Schema> schema) {
  return std::make_unique<StreamInput>(std::move(stream), std::move(schema), 0);
}

std::shared_ptr<data::Source> source_of(std::shared_ptr<Plan> plan) {
  return std::make_shared<PlanSource>(std::move(plan));
}

base::Result<std::unique_ptr<Input>> Input::open(Plan& plan, std::size_t fragment, std::int64_t row, std::int64_t end) {
  TRIREME_ASSIGN(auto opened, plan.open(fragment, row, end));
  TRIREME_ASSIGN(auto schema, schema_of(opened.stream));
  return std::unique_ptr<Input>(
      std::make_unique<StreamInput>(std::move(opened.stream), std::move(schema), row - opened.first_row));
}

bool Plan::remote() const {
  const auto below = inputs();
  return std::any_of(below.begin(), below.end(), [](const auto& each) { return each->remote(); });
}

std::int64_t Plan::decoding_bytes() const {
  std::int64_t most = 0;  // a fragment is from one of the inputs
  for (const auto& each : inputs()) most = std::max(most, each->decoding_bytes());
  return most;
}

namespace {

// Streams have the values of dictionaries.
data::Type plain(data::Type type) {
  type.dictionary = false;
  type.index_format.clear();
  for (auto& child : type.children) child = plain(std::move(child));
  return type;
}

}  // namespace

base::Result<void> check_not_widened(const data::Schema& before, const data::Schema& now) {
  if (&before == &now) return {};
  for (const auto& field : now.fields()) {
    const auto known = before.find(field.name);
    if (known && plain(before.fields()[*known].type) == plain(field.type)) continue;
    return base::error(
        "later rows need another type than the first ones for column '{}': {}; materialize() the dataset first, which "
        "finds a common type",
        field.name, field.type.text());
  }
  return {};
}

std::int64_t Plan::revision() {
  std::int64_t sum = 0;
  for (const auto& each : inputs()) sum += each->revision();
  return sum;
}

Work Plan::work() const {
  Work sum;
  for (const auto& each : inputs()) {
    const Work work = each->work();
    sum.costly = sum.costly || work.costly;
    sum.keeps_rows = sum.keeps_rows && work.keeps_rows;
    sum.made_together = std::max(sum.made_together, work.made_together);
  }
  return sum;
}

base::Result<std::shared_ptr<const data::Schema>> Plan::schema() {
  TRIREME_ASSIGN(const auto listed, fragments());
  if (listed.empty()) return data::Schema::take(make_schema("+s", ""));
  TRIREME_ASSIGN(auto opened, open(0, 0, data::kNoEnd), "{}", listed.front().name);
  return schema_of(opened.stream);
}

base::Result<void> Plan::list_once() {
  if (listed_) return {};
  TRIREME_ASSIGN(listed_, list());
  return {};
}

base::Result<std::vector<DataFragment>> Plan::fragments() {
  std::lock_guard lock(mutex_);
  TRIREME_TRY(list_once());
  return *listed_;
}

base::Result<std::int64_t> Plan::count(std::size_t fragment, base::WaitingNote& note) {
  return with_widest_types(*this, [&]() -> base::Result<std::int64_t> {
    TRIREME_ASSIGN(auto input, Input::open(*this, fragment, 0));
    for (std::int64_t rows = 0;;) {
      TRIREME_ASSIGN(const auto batch, input->next(0));
      note.tick();
      if (batch.rows() == 0) return rows;
      rows += batch.rows();
    }
  });
}

base::Result<void> Plan::count_all(std::vector<std::size_t> unknown) {
  const base::SystemClock clock;
  base::WaitingNote note("trireme: counting the rows of " + name(), clock,
                         [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); });
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::optional<base::Error> failed;
  const auto work = [&] {
    for (std::size_t i = next++; i < unknown.size(); i = next++) {
      DataFragment& fragment = (*listed_)[unknown[i]];
      auto rows = count(unknown[i], note);
      if (rows) {
        fragment.rows = *rows;
        continue;
      }
      std::lock_guard lock(mutex);
      if (!failed) failed = std::move(rows).error().wrap(fragment.name);
      next = unknown.size();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < std::min(kCountingThreads, unknown.size()); ++i) threads.emplace_back(work);
    work();
  }
  if (failed) return *std::move(failed);
  return {};
}

base::Result<std::vector<data::Fragment>> Plan::counted() {
  std::lock_guard lock(mutex_);
  TRIREME_TRY(list_once());
  if (!counted_) {
    std::vector<std::size_t> unknown;
    for (std::size_t i = 0; i < listed_->size(); ++i) {
      if (!(*listed_)[i].rows) unknown.push_back(i);
    }
    if (!unknown.empty()) TRIREME_TRY(count_all(std::move(unknown)));
    counted_ = true;
  }
  std::vector<data::Fragment> fragments;
  for (const auto& each : *listed_) fragments.push_back({each.name, *each.rows, each.bytes});
  return fragments;
}

Dict Plan::counts() {
  List below;
  for (const auto& input : inputs()) below.emplace_back(input->counts());
  Dict counts{{"inputs", std::move(below)}};
  std::lock_guard lock(mutex_);
  if (!counted_) return counts;
  List rows;
  storage::Digest names;
  for (const auto& each : *listed_) {
    rows.emplace_back(*each.rows);
    names.add(each.name);
    names.add("\n");
  }
  counts["rows"] = std::move(rows);
  counts["names"] = names.hex();
  return counts;
}

base::Result<void> Plan::take_counts(const Dict& counts) {
  const auto below = inputs();
  const auto& told = counts.at("inputs").as_list();
  if (told.size() != below.size()) return base::error("{} has different inputs in the driver", name());
  // Inputs first: a slice of other plans needs their row counts.
  for (std::size_t i = 0; i < below.size(); ++i) TRIREME_TRY(below[i]->take_counts(told[i].as_dict()));
  if (!counts.contains("rows")) return {};
  std::lock_guard lock(mutex_);
  TRIREME_TRY(list_once());
  const auto& rows = counts["rows"].as_list();
  storage::Digest names;
  for (const auto& each : *listed_) {
    names.add(each.name);
    names.add("\n");
  }
  if (rows.size() != listed_->size() || names.hex() != counts["names"].as_string()) {
    return base::error("{} has {} here and {} in the driver, or different ones", name(),
                       base::count_of(listed_->size(), "fragment"), rows.size());
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto& fragment = (*listed_)[i];
    if (fragment.rows && *fragment.rows != rows[i].as_int()) {
      return base::error("{} has {} here and {} in the driver", fragment.name, base::count_of(*fragment.rows, "row"),
                         rows[i].as_int());
    }
    fragment.rows = rows[i].as_int();
  }
  counted_ = true;
  return {};
}

namespace {

class SourcePlan final : public Plan {
 public:
  explicit SourcePlan(std::shared_ptr<DataSource> source) : source_(std::move(source)) {}

  std::string name() const override { return source_->name(); }
  DataSource* source() const { return source_.get(); }
  bool remote() const override { return source_->remote(); }
  std::int64_t decoding_bytes() const override { return source_->decoding_bytes(); }
  Work work() const override { return {.costly = source_->costly()}; }

  base::Result<data::Opened> open(std::size_t fragment, std::int64_t row, std::int64_t) override {
    data::Opened opened;
    TRIREME_ASSIGN(opened.first_row, called(name(), [&] { return source_->open(fragment, row, &*opened.stream); }));
    return opened;
  }

 protected:
  base::Result<std::vector<DataFragment>> list() override {
    return called(name(), [&] { return source_->list(); });
  }

 private:
  std::shared_ptr<DataSource> source_;  // shared with its creator
};

}  // namespace

std::shared_ptr<Plan> source_plan(std::shared_ptr<DataSource> source) {
  return std::make_shared<SourcePlan>(std::move(source));
}

DataSource* source_behind(const Plan& plan) {
  const auto* reads = dynamic_cast<const SourcePlan*>(&plan);
  return reads ? reads->source() : nullptr;
}

}  // namespace plan
}  // namespace trireme
