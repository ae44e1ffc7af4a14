#include "data/shard.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "base/config_fields.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "data/random.h"

namespace trireme::data {
namespace {

// Manifests store seeds as signed numbers.
constexpr std::uint64_t kSeedBits = (std::uint64_t{1} << 63) - 1;
constexpr std::int64_t kMostMemory = 2'000'000'000;

std::int64_t memory_budget(const ShardOptions& options) {
  if (options.memory_budget) return *options.memory_budget;
  const std::int64_t machine = std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  return std::min(machine / 4 / std::max(options.workers_here, 1), kMostMemory);
}

int num_threads(const ShardOptions& options) {
  if (options.threads) return static_cast<int>(*options.threads);
  cpu_set_t cpus;
  return ::sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) < 2 * options.workers_here ? 1 : 2;
}

base::Error no_position(const Dict& state) {
  return base::error("invalid position in a dataset: {}; load_state() accepts only what state() returns",
                     base::to_json(state));
}

base::Result<std::int64_t> number_in(const Dict& state, const char* key) {
  const Value* found = state.find(key);
  const auto* number = found ? found->get_if<std::int64_t>() : nullptr;
  if (!number || *number < 0) return no_position(state);
  return *number;
}

// Everything that determines the order of one epoch, besides its number and the sizes of the fragments.
struct EpochOrder {
  std::uint64_t seed = 0;
  std::int64_t virtual_shards = 1;
  std::int64_t window_rows = 0;
  bool shuffle_fragments = false;

  static EpochOrder of(const Layout& layout) {
    return {layout.seed, layout.virtual_shards, layout.window_rows, layout.shuffle_fragments};
  }
  void apply_to(Layout& layout) const {
    layout.seed = seed;
    layout.virtual_shards = virtual_shards;
    layout.window_rows = window_rows;
    layout.shuffle_fragments = shuffle_fragments;
  }
  bool operator==(const EpochOrder&) const = default;
};

// The position of a shard, shared by its passes and report().
struct Place {
  std::int64_t epoch = 0;
  std::int64_t rows = 0;  // consumed in this epoch, by all ranks
  bool begun = false;     // started by a pass of this process
  bool left = false;      // left before its end: the next pass starts the next epoch
  bool over = false;      // the last batch was delivered
  std::int64_t pass = 0;  // number of the pass: an older pass that the user kept does not move the position
  bool loaded = false;    // set by load_state(), and not started yet
  std::optional<EpochOrder> order = {};  // of this epoch, once a row was delivered
};

void add(PipelineStats& sum, const PipelineStats& each) {
  sum.rows += each.rows;
  sum.bytes += each.bytes;
  sum.batches += each.batches;
  sum.wait_s += each.wait_s;
  sum.held_bytes += each.held_bytes;
  sum.peak_bytes = std::max(sum.peak_bytes, each.peak_bytes);
  sum.retries += each.retries;
}

class EpochShard final : public Shard, public std::enable_shared_from_this<EpochShard> {
 public:
  EpochShard(Table table, ShardOptions options) : table_(std::move(table)), options_(std::move(options)) {
    table_.layout.seed &= kSeedBits;
    table_.layout.fragment_rows.clear();
    for (const auto& each : table_.fragments) table_.layout.fragment_rows.push_back(each.rows);
    rows_ = size_of(table_.fragments).rows;
  }

  base::Result<void> open_log() {
    if (options_.digest_folder.empty()) return {};
    const DigestContext context{options_.name, options_.log_rank, options_.log_world, options_.attempt, options_.whole};
    TRIREME_ASSIGN(log_, DigestLog::open(options_.digest_folder, context, table_.layout),
                   "could not log the samples of '{}'", options_.name);
    return {};
  }

  base::Result<std::unique_ptr<Pass>> iterate(const IterBatchesOptions& options, int ahead) override;

  void used(std::int64_t batches) override {
    std::lock_guard lock(mutex_);
    give_unused(batches);
  }

  std::int64_t epoch() const override {
    std::lock_guard lock(mutex_);
    return place_.left ? place_.epoch + 1 : place_.epoch;
  }
  std::int64_t rows() const override { return rows_; }

  Dict state() const override {
    std::lock_guard lock(mutex_);
    return state_at(place_.epoch, place_.rows, order_of(place_));
  }

  base::Result<void> load_state(const Dict& state) override {
    TRIREME_ASSIGN(const auto epoch, number_in(state, "epoch"));
    TRIREME_ASSIGN(const auto rows, number_in(state, "rows"));
    TRIREME_ASSIGN(const auto seed, number_in(state, "seed"));
    TRIREME_ASSIGN(const auto size, number_in(state, "size"));
    TRIREME_ASSIGN(const auto virtual_shards, number_in(state, "virtual_shards"));
    TRIREME_ASSIGN(const auto window_rows, number_in(state, "window_rows"));
    std::int64_t dataset_seed = seed;
    if (state.contains("dataset_seed")) {
      TRIREME_ASSIGN(dataset_seed, number_in(state, "dataset_seed"));
    }
    bool shuffle_fragments = table_.layout.shuffle_fragments;
    if (const Value* found = state.find("shuffle_fragments")) {
      if (!found->get_if<bool>()) return no_position(state);
      shuffle_fragments = *found->get_if<bool>();
    }
    if (size != rows_ && rows > 0) {
      return base::error(
          "dataset '{}': the position is in the middle of an epoch over {}, but there are {} now: resume with "
          "the same data, or from the end of an epoch",
          options_.name, base::count_of(size, "row"), rows_);
    }
    if (rows > rows_) return base::error("dataset '{}': invalid position: row {} of {}", options_.name, rows, rows_);
    std::lock_guard lock(mutex_);
    place_ = {epoch, rows, false, false, false, place_.pass + 1, true};
    forget_unused();
    table_.layout.seed = static_cast<std::uint64_t>(dataset_seed);
    if (rows == 0) return {};
    // Keep the order in which the epoch started, even if the configuration, call or version would choose another one:
    // otherwise rows would repeat and others would be skipped.
    place_.order = {static_cast<std::uint64_t>(seed), std::max<std::int64_t>(virtual_shards, 1), window_rows,
                    shuffle_fragments};
    return {};
  }

  void finish() override {
    std::lock_guard lock(mutex_);
    if (!log_) return;
    const bool next = place_.left || place_.over;
    log_->finish(next ? place_.epoch + 1 : place_.epoch, next ? 0 : place_.rows);
  }

  Dict position() override {
    std::lock_guard lock(mutex_);
    if (log_) log_->cut();
    const bool next = place_.left || place_.over;
    if (next) return state_at(place_.epoch + 1, 0, EpochOrder::of(table_.layout));
    return state_at(place_.epoch, place_.rows, order_of(place_));
  }

  PipelineStats stats() const override {
    std::lock_guard lock(mutex_);
    PipelineStats sum = past_;
    if (running_) add(sum, running_->stats());
    return sum;
  }

  std::optional<std::int64_t> logged_rows() const override {
    std::lock_guard lock(mutex_);
    if (!log_) return std::nullopt;
    return log_->rows();
  }

 private:
  friend class EpochPass;

  struct Taken {
    Span span;
    std::int64_t rows = 0;
    std::uint64_t digest = 0;
    bool last = false;  // of the epoch
  };

  // The user receives this batch.
  void give(const Taken& given) {
    place_.rows = given.span.end;
    place_.over = given.last;
    if (!log_) return;
    log_->add(given.span, given.rows, given.digest);
    if (place_.over) log_->end(true);
  }

  void give_unused(std::int64_t batches) {
    for (; batches > 0 && !unused_.empty(); --batches) {
      give(unused_.front());
      unused_.pop_front();
    }
    if (all_taken_ && unused_.empty()) end_epoch();
  }

  void forget_unused() {
    unused_.clear();
    all_taken_ = false;
  }

  void end_epoch() {
    ++place_.epoch;
    place_.rows = 0;
    place_.begun = place_.over = all_taken_ = false;
    place_.order.reset();
    if (log_) log_->end(true);
  }

  EpochOrder order_of(const Place& place) const {
    return place.rows > 0 && place.order ? *place.order : EpochOrder::of(table_.layout);
  }

  Dict state_at(std::int64_t epoch, std::int64_t rows, const EpochOrder& order) const {
    Dict state{{"epoch", epoch},
               {"rows", rows},
               {"size", rows_},
               {"seed", static_cast<std::int64_t>(order.seed)},
               {"virtual_shards", order.virtual_shards},
               {"window_rows", order.window_rows},
               {"shuffle_fragments", order.shuffle_fragments},
               {"dataset_seed", static_cast<std::int64_t>(table_.layout.seed)}};
    if (options_.whole) state["whole"] = true;
    return state;
  }

  base::Result<PipelineOptions> pipeline_options(const IterBatchesOptions& options) const;

  Table table_;
  const ShardOptions options_;
  std::int64_t rows_ = 0;
  mutable std::mutex mutex_;  // guards everything below, and the layout's seed
  Place place_;
  std::unique_ptr<DigestLog> log_;
  // Of a pass whose consumer calls used(): what it has taken since. A pass may be destroyed before they are used.
  std::deque<Taken> unused_;
  bool all_taken_ = false;             // nothing will follow them in this epoch
  const Pipeline* running_ = nullptr;  // the current pass's
  PipelineStats past_;
};

class EpochPass final : public Pass {
 public:
  EpochPass(std::shared_ptr<EpochShard> shard, std::unique_ptr<Pipeline> pipeline, PipelineOptions options,
            std::int64_t revision, std::int64_t number, int ahead)
      : shard_(std::move(shard)),
        pipeline_(std::move(pipeline)),
        options_(std::move(options)),
        revision_(revision),
        number_(number),
        ahead_(static_cast<std::size_t>(std::max(ahead, 0))),
        told_(ahead < 0) {}

  ~EpochPass() override {
    std::lock_guard lock(shard_->mutex_);
    leave_pipeline();
    if (!current()) return;
    if (!ended_) shard_->place_.left = true;
    if (shard_->log_ && !shard_->all_taken_) shard_->log_->end(false);
  }

  std::int64_t epoch() const override { return options_.epoch; }
  std::int64_t steps() const override { return steps_before_ + pipeline_->steps(); }

  base::Result<void> reopen() override {
    revision_ = shard_->table_.source->revision();
    TRIREME_ASSIGN(auto again, Pipeline::start(shard_->table_.fragments, shard_->table_.source, options_),
                   "dataset '{}'", shard_->options_.name);
    std::unique_lock lock(shard_->mutex_);
    leave_pipeline();
    if (current()) shard_->running_ = again.get();
    std::swap(pipeline_, again);
    steps_before_ = taken_steps_;
    lock.unlock();  // the threads of the other one may be waiting for the interpreter
    return {};
  }

  base::Result<Next> next(std::chrono::duration<double> timeout) override {
    auto made = pipeline_->next(timeout);
    while (!made && shard_->table_.source->revision() != revision_) {
      TRIREME_TRY(reopen());
      made = pipeline_->next(timeout);
    }
    TRIREME_ASSIGN(Next next, std::move(made));
    if (next.state == Next::State::kBatch) {
      options_.begin = next.span.end;
      ++taken_steps_;
    }
    std::lock_guard lock(shard_->mutex_);
    if (!current()) return next;
    if (next.state == Next::State::kBatch) {
      std::deque<Taken>& taken = told_ ? shard_->unused_ : taken_;
      taken.push_back({next.span, next.own_rows, next.digest, taken_steps_ == steps()});
      if (!told_ && taken.size() > ahead_) give_one();
    } else if (next.state == Next::State::kEnd && !ended_) {
      while (!taken_.empty()) give_one();
      ended_ = true;
      shard_->all_taken_ = true;
      shard_->give_unused(0);
    }
    return next;
  }

 private:
  using Taken = EpochShard::Taken;

  bool current() const { return shard_->place_.pass == number_; }

  // Its numbers become past ones.
  void leave_pipeline() {
    add(shard_->past_, pipeline_->stats());
    if (shard_->running_ == pipeline_.get()) shard_->running_ = nullptr;
  }

  // The user receives the next batch.
  void give_one() {
    shard_->give(taken_.front());
    taken_.pop_front();
  }

  std::shared_ptr<EpochShard> shard_;  // shared: a pass may outlive the handle of its shard
  std::unique_ptr<Pipeline> pipeline_;
  PipelineOptions options_;  // begin: after the last batch of the pipeline
  std::int64_t revision_;    // of the source, before the pipeline was started
  std::int64_t number_;
  std::size_t ahead_;
  bool told_;                // the consumer calls used()
  std::deque<Taken> taken_;  // consumed but not yet delivered
  std::int64_t taken_steps_ = 0;
  std::int64_t steps_before_ = 0;  // of the pipelines before this one
  bool ended_ = false;
};

base::Result<PipelineOptions> EpochShard::pipeline_options(const IterBatchesOptions& options) const {
  if (auto problem = base::find_problem(options)) return base::Error(*std::move(problem));
  PipelineOptions made;
  made.layout = table_.layout;
  if (options.local_shuffle_buffer_size) {
    const std::int64_t shards = made.layout.virtual_shards;
    const std::int64_t window = (*options.local_shuffle_buffer_size + shards - 1) / shards;
    made.layout.window_rows = std::max(made.layout.window_rows, std::min(window, rows_));
    if (options.local_shuffle_seed) {
      made.layout.seed = mixed(static_cast<std::uint64_t>(*options.local_shuffle_seed)) & kSeedBits;
    }
  }
  made.rank = options_.rank;
  made.cutting.world = options_.world;
  made.cutting.max_world = options_.max_world;
  made.cutting.batch_rows = options.global_batch_size.value_or(options.batch_size * options_.world);
  made.cutting.drop_last = options.drop_last;
  made.cutting.pad = options.pad_last;
  made.cutting.equal = options_.equal;
  made.prefetch_batches = options.prefetch_batches;
  made.threads = num_threads(options_);
  made.reads = options_.threads ? 0 : options_.function_processes;
  made.memory_budget = memory_budget(options_);
  made.decoding_bytes = options_.decoding_bytes;
  made.read_retries = options_.remote ? kReadRetries : 0;
  made.digest = log_ != nullptr;
  return made;
}

base::Result<std::unique_ptr<Pass>> EpochShard::iterate(const IterBatchesOptions& options, int ahead) {
  std::unique_lock lock(mutex_);
  TRIREME_ASSIGN(PipelineOptions made, pipeline_options(options), "dataset '{}'", options_.name);
  // A consumer that asks for the next epoch before it has used all of this one, as tf.data's repeat() does.
  if (all_taken_) give_unused(std::ssize(unused_));
  // Uses a copy of the position: an error leaves the original unchanged.
  Place place = place_;
  if (place.begun || place.left) place = {place.epoch + 1, 0, false, false, false, place.pass};
  made.epoch = place.epoch;
  made.begin = place.rows;
  if (place.rows > 0 && place.order) {
    if (*place.order != EpochOrder::of(made.layout) && options_.log_rank == 0) {
      base::log_warning(
          "dataset '{}': epoch {} continues at row {} in its original order; the new shuffle (seed, "
          "window, local_shuffle_buffer_size, local_shuffle_seed) takes effect with epoch {}",
          options_.name, place.epoch, place.rows, place.epoch + 1);
    }
    place.order->apply_to(made.layout);
  }
  const std::int64_t revision = table_.source->revision();
  TRIREME_ASSIGN(auto pipeline, Pipeline::start(table_.fragments, table_.source, made), "dataset '{}'", options_.name);
  if (log_) log_->begin({place.epoch, place.rows, place.loaded, made.layout, made.cutting});
  place.begun = true;
  place.loaded = false;
  place.order = EpochOrder::of(made.layout);
  ++place.pass;
  place_ = place;
  forget_unused();
  running_ = pipeline.get();
  return std::unique_ptr<Pass>(std::make_unique<EpochPass>(shared_from_this(), std::move(pipeline), std::move(made),
                                                           revision, place.pass, ahead));
}

}  // namespace

base::Result<std::shared_ptr<Shard>> Shard::make(Table table, ShardOptions options) {
  auto shard = std::make_shared<EpochShard>(std::move(table), std::move(options));
  TRIREME_TRY(shard->open_log());
  return std::shared_ptr<Shard>(std::move(shard));
}

}  // namespace trireme::data
