#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

// A c10d backend that computes with Gloo on the CPU and fails like NCCL on a GPU, for tests without one:
// - With a dead peer, an operation never ends: wait() blocks in native code, without the GIL, like a kernel that spins.
// - shutdown(), and therefore destroy_process_group(), blocks while an operation is pending.
// - abort() ends pending operations with NCCL's error.
// - Optionally a watchdog ends the process with SIGABRT and NCCL's messages when an operation exceeds its timeout.
// - Optionally abort() never returns (NVIDIA/nccl issues 863 and 1013).

namespace nccl_like {

struct Faults {
  std::chrono::milliseconds timeout{30 * 60 * 1000};
  bool watchdog = false;
  bool abort_hangs = false;
};

inline c10::intrusive_ptr<c10::ivalue::Future> new_future(c10d::Work& work) {
  const auto future = work.getFuture();
  return c10::make_intrusive<c10::ivalue::Future>(future ? future->elementType() : c10::NoneType::get());
}

// Completed by the thread of the backend.
class LikeWork final : public c10d::Work {
 public:
  LikeWork(c10::intrusive_ptr<c10d::Work> inner, int rank, std::string name, std::uint64_t sequence)
      : c10d::Work(rank),
        inner_(std::move(inner)),
        name_(std::move(name)),
        sequence_(sequence),
        future_(new_future(*inner_)) {}

  // NCCL does not notice a dead peer: only success counts.
  bool done() const { return inner_->isCompleted() && inner_->isSuccess(); }
  void complete() {
    const auto future = inner_->getFuture();
    future_->markCompleted(future ? future->value() : c10::IValue());
    finish();
  }
  void abort_with(const std::exception_ptr& error) {
    future_->setError(error);
    finish(error);
  }

  std::vector<at::Tensor> result() override { return inner_->result(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  std::uint64_t getSequencenumber() const override { return sequence_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

  const std::string& name() const { return name_; }
  std::chrono::steady_clock::time_point began() const { return began_; }

 private:
  const c10::intrusive_ptr<c10d::Work> inner_;
  const std::string name_;
  const std::uint64_t sequence_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

class Backend final : public c10d::Backend {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  Backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, Faults faults)
      : c10d::Backend(rank, size), faults_(faults) {
    using Gloo = c10d::ProcessGroupGloo;
    // Longer than any test: a timeout of Gloo's own would not be like NCCL.
    auto gloo = Gloo::Options::create(std::chrono::hours(1));
    gloo->devices.push_back(Gloo::createDeviceForHostname("127.0.0.1"));
    inner_ = c10::make_intrusive<Gloo>(store, rank, size, gloo);
    thread_ = std::thread([this] { watch(); });
  }

  ~Backend() override {
    if (!aborted()) shutdown();
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
      changed_.notify_all();
    }
    thread_.join();
    // After an abort Gloo may still be in an operation with a rank that hangs, and would wait for it.
    if (aborted_) [[maybe_unused]]
      auto* leaked = new c10::intrusive_ptr<c10d::ProcessGroupGloo>(std::move(inner_));
  }

  const std::string getBackendName() const override { return "nccl_like"; }

  void shutdown() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return pending_.empty() || aborted_; });
  }

  void abort() override {
    std::unique_lock lock(mutex_);
    while (faults_.abort_hangs) changed_.wait(lock);
    aborted_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return pending_.empty(); });
  }

  void setTimeout(std::chrono::milliseconds timeout) override {
    std::lock_guard lock(mutex_);
    faults_.timeout = timeout;
  }
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override {
    std::lock_guard lock(mutex_);
    return sequence_;
  }

  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    return launch("BROADCAST", [&] { return inner_->broadcast(tensors, opts); });
  }
  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    return launch("ALLREDUCE", [&] { return inner_->allreduce(tensors, opts); });
  }
  Work allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    return launch("ALLREDUCE_COALESCED", [&] { return inner_->allreduce_coalesced(tensors, opts); });
  }
  Work reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    return launch("REDUCE", [&] { return inner_->reduce(tensors, opts); });
  }
  Work allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    return launch("ALLGATHER", [&] { return inner_->allgather(outputs, inputs, opts); });
  }
  Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override {
    return launch("_ALLGATHER_BASE", [&] { return inner_->_allgather_base(output, input, opts); });
  }
  Work gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override {
    return launch("GATHER", [&] { return inner_->gather(outputs, inputs, opts); });
  }
  Work scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override {
    return launch("SCATTER", [&] { return inner_->scatter(outputs, inputs, opts); });
  }
  Work reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& opts) override {
    return launch("REDUCE_SCATTER", [&] { return inner_->reduce_scatter(outputs, inputs, opts); });
  }
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override {
    return launch("_REDUCE_SCATTER_BASE", [&] { return inner_->_reduce_scatter_base(output, input, opts); });
  }
  Work alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_sizes,
                     std::vector<std::int64_t>& input_sizes, const c10d::AllToAllOptions& opts) override {
    return launch("ALLTOALL_BASE",
                  [&] { return inner_->alltoall_base(output, input, output_sizes, input_sizes, opts); });
  }
  Work send(Tensors& tensors, int rank, int tag) override {
    return launch("SEND", [&] { return inner_->send(tensors, rank, tag); });
  }
  Work recv(Tensors& tensors, int rank, int tag) override {
    return launch("RECV", [&] { return inner_->recv(tensors, rank, tag); });
  }
  Work barrier(const c10d::BarrierOptions& opts) override {
    return launch("BARRIER", [&] { return inner_->barrier(opts); });
  }

 private:
  using LikeWorks = std::list<c10::intrusive_ptr<LikeWork>>;
  static constexpr auto kPeriod = std::chrono::microseconds(500);

  bool aborted() {
    std::lock_guard lock(mutex_);
    return aborted_;
  }

  std::string aborted_message() const {
    return "NCCL communicator was aborted on rank " + std::to_string(getRank()) + ".";
  }

  Work launch(const char* name, const std::function<Work()>& start) {
    std::lock_guard lock(mutex_);
    if (aborted_) C10_THROW_ERROR(DistBackendError, aborted_message());
    auto work = c10::make_intrusive<LikeWork>(start(), getRank(), name, ++sequence_);
    pending_.push_back(work);
    changed_.notify_all();
    return work;
  }

  // The top of the backend's thread.
  void watch() {
    std::unique_lock lock(mutex_);
    while (!stopped_) {
      LikeWorks ended;
      for (auto it = pending_.begin(); it != pending_.end();) {
        const auto next = std::next(it);
        if (aborted_ || (*it)->done()) {
          ended.splice(ended.end(), pending_, it);
        } else if (faults_.watchdog && std::chrono::steady_clock::now() - (*it)->began() > faults_.timeout) {
          end_process(**it);
        }
        it = next;
      }
      const bool aborted = aborted_;
      lock.unlock();  // callbacks of the futures may start other operations
      for (auto& work : ended) {
        if (aborted) {
          work->abort_with(aborted_error());
        } else {
          work->complete();
        }
      }
      const bool some = !ended.empty();
      ended.clear();
      lock.lock();
      if (some) changed_.notify_all();
      if (pending_.empty()) {
        changed_.wait(lock, [&] { return stopped_ || !pending_.empty(); });
      } else {
        changed_.wait_for(lock, kPeriod);
      }
    }
  }

  std::exception_ptr aborted_error() const {
    try {
      C10_THROW_ERROR(DistBackendError, aborted_message());
    } catch (...) {
      return std::current_exception();
    }
  }

  // As ProcessGroupNCCL does it: a line in the log, then an exception that nothing catches on this thread.
  [[noreturn]] void end_process(const LikeWork& work) const {
    const auto ran =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - work.began());
    const std::string caught =
        "[Rank " + std::to_string(getRank()) +
        "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" + std::to_string(work.getSequencenumber()) +
        ", OpType=" + work.name() + ", NumelIn=1, NumelOut=1, Timeout(ms)=" + std::to_string(faults_.timeout.count()) +
        ") ran for " + std::to_string(ran.count()) + " milliseconds before timing out.";
    const std::string rank = std::to_string(getRank());
    std::fprintf(stderr,
                 "[rank%s]:[E1118 12:00:00.000000000 ProcessGroupNCCL.cpp:683] %s\n"
                 "[rank%s]:[E1118 12:00:00.000000000 ProcessGroupNCCL.cpp:744] To avoid data inconsistency, we are "
                 "taking the entire process down.\n",
                 rank.c_str(), caught.c_str(), rank.c_str());
    C10_THROW_ERROR(DistBackendError, "[PG ID 0 PG GUID 0(default_pg) Rank " + rank +
                                          "] Process group watchdog thread terminated with exception: " + caught);
  }

  Faults faults_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> inner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  LikeWorks pending_;
  std::uint64_t sequence_ = 0;
  bool aborted_ = false;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace nccl_like
