#include "data/pipeline.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "data/lane.h"
#include "data/packed_rows.h"
#include "data/random.h"
#include "data/window.h"

namespace trireme::data {

std::uint64_t row_digest(std::int64_t slot, std::int64_t sample) {
  return mixed(mixed(static_cast<std::uint64_t>(slot)) ^ static_cast<std::uint64_t>(sample));
}

namespace {

using Clock = std::chrono::steady_clock;

// Share of the budget that is not reserved for allocators, which keep part of the freed memory.
constexpr double kUsable = 3.0 / 5;
// Share of that for rows: the minimum, however much decoders take, and the maximum, as decoders may take more than
// known.
constexpr double kLeastForRows = 1.0 / 6;
constexpr double kMostForRows = 5.0 / 6;
// Minimum number of rows to request ahead, however small the batches are.
constexpr std::int64_t kStrideRows = 16384;

// A step whose rows are all in memory.
struct Job {
  std::int64_t step = 0;
  Span span;
  std::vector<View> parts;
};

class ThreadedPipeline final : public Pipeline {
 public:
  ThreadedPipeline(std::vector<Fragment> fragments, std::shared_ptr<Source> source, const PipelineOptions& options,
                   Steps steps)
      : options_(options), order_(options.layout, options.epoch), steps_(steps) {
    row_bytes_ = size_of(fragments).row_bytes();
    std::int64_t sample = 0;
    for (const auto& each : fragments) {
      reading_.samples.push_back(sample);
      sample += each.rows;
    }
    reading_.fragments = std::move(fragments);
    reading_.source = std::move(source);
    for (int i = 0; i < std::max(reads_at_once(), 1); ++i) threads_.emplace_back([this] { run(); });
  }

  ~ThreadedPipeline() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_.notify_all();
    done_.notify_all();
    threads_.clear();  // joins
  }

  std::int64_t steps() const override { return steps_.count(); }

  base::Result<Next> next(std::chrono::duration<double> timeout) override {
    std::unique_lock lock(mutex_);
    const auto began = Clock::now();
    auto ready = [&] {
      const bool failed = error_ && (assembling_ == 0 || broken_);
      return next_out_ == steps_.count() || finished_.contains(next_out_) || failed;
    };
    const bool here = done_.wait_for(lock, timeout, ready);
    stats_.wait_s += std::chrono::duration<double>(Clock::now() - began).count();
    if (next_out_ == steps_.count()) return Next{};
    auto found = finished_.find(next_out_);
    if (found == finished_.end()) {
      if (here) return *error_;
      Next late;
      late.state = Next::State::kTimeout;
      return late;
    }
    Next out = std::move(found->second);
    finished_.erase(found);
    ++next_out_;
    stats_.rows += out.rows;
    stats_.bytes += out.batch->bytes();
    ++stats_.batches;
    held_ -= out.batch->bytes();
    lock.unlock();
    work_.notify_all();
    return out;
  }

  PipelineStats stats() const override {
    std::lock_guard lock(mutex_);
    PipelineStats stats = stats_;
    stats.held_bytes = held_;
    return stats;
  }

 private:
  void run() {
    try {
      work();
    } catch (const std::exception& error) {  // top of a thread: out of memory, or a bug
      std::lock_guard lock(mutex_);
      if (!error_) error_ = base::error("reading data failed: {}", error.what());
      broken_ = true;
      done_.notify_all();
    }
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      if (auto job = next_job()) {
        assemble(lock, *std::move(job));
      } else if (auto [lane, task] = next_task(); task) {
        read(lock, *lane, *task);
      } else {
        work_.wait(lock);
      }
    }
  }

  // The next step, if all its rows are in memory and there is room for another batch.
  std::optional<Job> next_job() {
    if (error_ || next_step_ == steps_.count()) return {};
    if (next_step_ >= next_out_ + options_.prefetch_batches + options_.threads) return {};
    const Span span = steps_[next_step_];
    const auto parts = share_of(span);
    bool here = true;
    for (const auto& part : parts) {
      want(part);  // regardless of memory: without these rows nothing continues
      here = here && lanes_.at(part.shard)->window().has(part.rows);
    }
    if (!here) return {};
    Job job{next_step_++, span, {}};
    for (const auto& part : parts) job.parts.push_back(lanes_.at(part.shard)->window().view(part.rows));
    // Only after all views exist: padding repeats the same rows.
    for (const auto& part : parts) held_ -= lanes_.at(part.shard)->window().release_before(part.rows.end);
    return job;
  }

  void assemble(std::unique_lock<std::mutex>& lock, Job job) {
    ++assembling_;
    lock.unlock();
    work_.notify_one();
    auto made = put_together(job);
    job.parts.clear();
    lock.lock();
    --assembling_;
    if (made) {
      hold(made->batch->bytes());
      finished_.emplace(job.step, *std::move(made));
    } else if (!error_) {
      error_ = std::move(made).error();
    }
    done_.notify_all();
  }

  base::Result<Next> put_together(const Job& job) const {
    std::vector<std::shared_ptr<const Chunk>> chunks;
    std::vector<Run> runs;
    Next out;
    out.state = Next::State::kBatch;
    out.span = job.span;
    for (const auto& part : job.parts) {
      part.append_runs(chunks, runs);
      out.rows += part.rows().size();
    }
    const Span slots = own_slots(job.span, options_.rank, options_.cutting.world, pad_to(job.span));
    out.own_rows = slots.size();
    if (options_.digest) out.digest = digest_of(job, slots);
    TRIREME_ASSIGN(out.batch, Batch::gather(chunks, runs));
    return out;
  }

  static std::uint64_t digest_of(const Job& job, Span slots) {
    std::uint64_t digest = 0;
    for (const auto& part : job.parts) {
      part.each_sample([&](std::int64_t sample) {
        if (slots.begin == slots.end) return;  // padding of the batch
        digest += row_digest(job.span.begin + slots.begin++, sample);
      });
    }
    return digest;
  }

  std::int64_t pad_to(Span span) const { return options_.cutting.pad_to(span); }

  std::vector<ShardRows> share_of(Span span) const {
    return share(span, order_.virtual_shards(), options_.rank, options_.cutting.world, pad_to(span));
  }

  // The next piece to read: from the lane that is furthest behind, since lanes are consumed in parallel.
  std::pair<Lane*, Lane::Task*> next_task() {
    if (error_) return {};
    look_ahead();
    const std::size_t most = pieces_at_once();
    std::pair<Lane*, Lane::Task*> found;
    for (const auto& [shard, lane] : lanes_) {
      if (found.first && found.first->window().read_to() <= lane->window().read_to()) continue;
      if (auto* task = lane->next_task(most)) found = {lane.get(), task};
    }
    return found;
  }

  // Requests rows for later steps while there is room.
  void look_ahead() {
    const std::int64_t room = room_for_rows();
    const auto most_rows = static_cast<std::int64_t>(static_cast<double>(room) / std::max(row_bytes_, 1.0) / 4);
    const std::int64_t rows = std::min(kStrideRows, most_rows);
    const std::int64_t stride = std::max<std::int64_t>(rows / options_.cutting.batch_rows, 1);
    while (next_demand_ < steps_.count() && held_ + bytes_on_their_way() < room) {
      next_demand_ = std::min(std::max(next_demand_, next_step_) + stride, steps_.count());
      for (const auto& part : share_of(steps_[next_demand_ - 1])) want(part);
    }
  }

  double usable() const { return static_cast<double>(options_.memory_budget) * kUsable; }

  // Also true between two pieces: the next one starts in a moment.
  double bytes_of_decoders() const {
    std::int64_t open = 0;
    for (const auto& [shard, lane] : lanes_) open += std::max<std::int64_t>(lane->open_pieces(), 1);
    return static_cast<double>(open * options_.decoding_bytes);
  }

  std::int64_t room_for_rows() const {
    const double left = usable() - bytes_of_decoders();
    return static_cast<std::int64_t>(std::clamp(left, usable() * kLeastForRows, usable() * kMostForRows));
  }

  bool room_for_decoder() const {
    const double taken = static_cast<double>(held_ + bytes_on_their_way()) + bytes_of_decoders();
    return taken + static_cast<double>(options_.decoding_bytes) <= usable();
  }

  void want(const ShardRows& part) {
    auto& lane = lanes_[part.shard];
    if (!lane) {
      // From the common start of all lanes: an earlier step may need rows before these.
      const std::int64_t shards = order_.virtual_shards();
      const std::int64_t first = std::max<std::int64_t>(options_.begin - part.shard + shards - 1, 0) / shards;
      lane = std::make_unique<Lane>(reading_, order_, part.shard, first);
    }
    lane->want(part.rows);
  }

  // Estimate of the memory held when all requested rows are read.
  std::int64_t bytes_on_their_way() const {
    std::int64_t rows = 0;
    for (const auto& [shard, lane] : lanes_) rows += lane->missing_rows();
    return static_cast<std::int64_t>(static_cast<double>(rows) * row_bytes_);
  }

  // Number of pieces of one virtual shard that are read concurrently: all threads if there are few shards, one if there
  // is no memory for another decoder.
  std::size_t pieces_at_once() const {
    if (options_.decoding_bytes > 0 && !room_for_decoder()) return 1;
    return std::max<std::size_t>(static_cast<std::size_t>(reads_at_once()) / std::max<std::size_t>(lanes_.size(), 1),
                                 1);
  }

  int reads_at_once() const { return std::max(options_.threads, options_.reads); }

  void read(std::unique_lock<std::mutex>& lock, Lane& lane, Lane::Task& task) {
    task.busy = true;
    lock.unlock();
    work_.notify_one();
    std::optional<FragmentReader::Failure> failure;
    auto stretch = task.reader.next(failure);
    if (stretch && order_.window_rows() > 1) pack(*stretch);
    lock.lock();
    if (stretch) {
      row_bytes_ = static_cast<double>(stretch->chunk->bytes()) / static_cast<double>(stretch->chunk->rows());
      hold(stretch->bytes());
      task.retries = 0;
      task.busy = false;
      lane.take(task, *std::move(stretch));
    } else if (failure && failure->may_pass && task.retries < options_.read_retries) {
      const auto pause = options_.retry_pause * static_cast<double>(1 << (2 * std::min(task.retries, 8)));
      ++task.retries;
      ++stats_.retries;
      done_.wait_for(lock, pause, [&] { return stop_; });
      task.busy = false;
    } else {
      if (!error_) error_ = failure ? std::move(failure->error) : base::Error("a piece ended before its last row");
      done_.notify_all();
    }
    work_.notify_all();
  }

  // For rows that will be read in random order.
  static void pack(Stretch& stretch) {
    const auto& schema = stretch.chunk->schema();
    auto layout = RowLayout::of(*schema);
    if (!layout) return;
    stretch.chunk = Chunk::of(PackedRows(*stretch.chunk, stretch.chunk_row, stretch.count, *std::move(layout)), schema);
    stretch.chunk_row = 0;
  }

  void hold(std::int64_t bytes) {
    held_ += bytes;
    stats_.peak_bytes = std::max(stats_.peak_bytes, held_);
  }

  Reading reading_;
  const PipelineOptions options_;
  const Order order_;
  const Steps steps_;

  mutable std::mutex mutex_;  // all below
  std::condition_variable work_;
  std::condition_variable done_;
  std::map<std::int64_t, std::unique_ptr<Lane>> lanes_;
  std::int64_t next_step_ = 0;    // the next step to assemble
  std::int64_t next_demand_ = 0;  // the next step whose rows are not requested yet
  std::int64_t next_out_ = 0;
  std::map<std::int64_t, Next> finished_;
  int assembling_ = 0;
  std::int64_t held_ = 0;
  double row_bytes_ = 0;  // of the latest rows; before that an estimate from the fragments
  std::optional<base::Error> error_;
  bool broken_ = false;  // a thread has failed in the middle of its work
  PipelineStats stats_;
  bool stop_ = false;
  std::vector<std::jthread> threads_;
};

base::Result<void> check_window(const DatasetSize& size, const PipelineOptions& options) {
  if (options.layout.window_rows == 0) return {};
  const std::int64_t shards = options.layout.virtual_shards;
  const std::int64_t mine = std::min(shards, (shards + options.cutting.world - 1) / options.cutting.world + 1);
  const std::int64_t in_windows = std::min(size.rows, mine * options.layout.window_rows);
  const double needed =
      size.row_bytes() * static_cast<double>(in_windows) + static_cast<double>(options.decoding_bytes);
  if (needed <= static_cast<double>(options.memory_budget)) return {};
  constexpr double kMiB = 1 << 20;
  return base::error(
      "shuffling {} rows at a time needs about {:.0f} MiB, but the memory budget is {:.0f} MiB: raise "
      "DataConfig.memory_budget, or lower window_rows of random_shuffle()",
      in_windows, needed / kMiB, static_cast<double>(options.memory_budget) / kMiB);
}

}  // namespace

base::Result<std::unique_ptr<Pipeline>> Pipeline::start(std::vector<Fragment> fragments, std::shared_ptr<Source> source,
                                                        const PipelineOptions& options) {
  const DatasetSize size = size_of(fragments);
  TRIREME_ASSIGN(Steps steps, Steps::cut(size.rows, options.begin, options.cutting));
  TRIREME_TRY(check_window(size, options));
  return std::unique_ptr<Pipeline>(
      std::make_unique<ThreadedPipeline>(std::move(fragments), std::move(source), options, steps));
}

}  // namespace trireme::data
