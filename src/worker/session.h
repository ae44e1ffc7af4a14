#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/tick_watch.h"
#include "wire/client.h"
#include "worker/checkpoint_writer.h"

namespace trireme::worker {

using base::Result;

// What a worker process was given to find its run; see control/controller.cpp.
struct Ticket {
  wire::Address address;
  std::string secret;
  std::string run_id;
  int rank = 0;
  int attempt = 0;
  int driver = 0;  // its pid; 0: not of this machine
};

Result<Ticket> parse_ticket(const std::string& json);

struct ReportOptions {
  std::optional<std::string> checkpoint_name = {};
  Value validation = {};  // null: none
  Dict positions = {};    // in the data, by name; stored with the checkpoint
  Dict data = {};         // read so far: rows, bytes, wait_s
};

// Workers that will be lost, as somebody has announced.
struct PreemptionInfo {
  Dict nodes;           // host -> ranks that will be lost with it
  double deadline = 0;  // seconds since 1970
  std::string why;
};

Dict to_dict(const PreemptionInfo& info);

// A worker's side of the connection. The user's thread calls; a thread of its own does the I/O, so that heartbeats and
// reports go on while the function computes, whatever the interpreter lock does.
class Session {
 public:
  // Called on the I/O thread when the controller is gone. The process has nothing left to work for: the default says so
  // and exits.
  using LostHandler = std::function<void(const std::string& why)>;

  static Result<std::unique_ptr<Session>> join(const Ticket& ticket, LostHandler lost = exit_process);
  // The clock outlives the session.
  static Result<std::unique_ptr<Session>> join(const Ticket& ticket, LostHandler lost, const base::Clock& clock);
  ~Session();

  // Blocks until every rank is there and the controller says what to run: once, and again after every become_ready().
  Result<wire::Start> wait_start();
  const wire::Start& start() const { return start_; }

  // `holds`: what is expensive to make again in this process, for example a CUDA context; empty: nothing.
  void entered(std::string holds = {});

  // The run's storage, where it cannot be opened from its URI alone (Python's file systems). Before the first report.
  void set_files(std::shared_ptr<storage::Files> files) { files_ = std::move(files); }

  // Returns as soon as the report is queued, and with a checkpoint as its mode says. Waits only while thousands of
  // reports are not recorded yet. Returns the folder of the checkpoint in the run's storage.
  Result<std::optional<std::string>> report(Metrics metrics, std::optional<CheckpointSource> checkpoint = {},
                                            ReportOptions options = {});

  // The folder, in the run's storage, of the newest checkpoint that this rank has stored: one of an ASYNC report only
  // when it is committed.
  std::optional<std::string> newest_checkpoint();

  // What the run retains, worst first, once every checkpoint that this rank has reported is committed (and validated).
  // After the timeout: what is known.
  Result<List> list_checkpoints(bool validated, std::optional<base::Seconds> timeout);

  // Says that the function returned, and waits until every rank has said so, or another attempt begins.
  Result<void> finish(Value value, bool pickled);
  // Says that it failed; returns once the message has left this process.
  void fail(wire::Failed failure);

  // The function is to be left, for the next attempt: calls that wait return errors, and the interrupt is called.
  bool cancelled() const { return cancelled_; }
  // While it is cancelled: whether the process may end instead of being kept.
  bool may_decline() const { return may_decline_; }
  // How to get the user's thread out of its function: called on the I/O thread, again and again until become_ready().
  void set_interrupt(std::function<void()> interrupt);
  // After the function: whether there will be another attempt. False: it is over.
  bool wait_for_cancel();
  // Nothing of the function is left: this process is ready for the next attempt.
  void become_ready();

  // What was announced to this attempt, if anything.
  std::optional<PreemptionInfo> preemption();
  // Somebody wants this process gone: the controller is told, so that a last checkpoint can be made.
  void announce_own_preemption(const std::string& why);

  Result<void> store_set(const std::string& key, std::string value);
  Result<std::string> store_get(const std::string& key, base::Seconds timeout);
  Result<std::int64_t> store_add(const std::string& key, std::int64_t amount);
  Result<void> store_wait(const std::vector<std::string>& keys, base::Seconds timeout);
  // Whether all of them are set now.
  Result<bool> store_check(const std::vector<std::string>& keys);
  Result<bool> store_delete(const std::string& key);
  Result<std::string> store_compare_set(const std::string& key, std::string expected, std::string desired);
  Result<std::int64_t> store_count();

  Result<void> barrier();
  // Rank 0's data, on every rank.
  Result<std::string> broadcast(std::optional<std::string> data);

  // Whether this is a child that the worker has forked: it has the session's memory, and no thread that does the I/O.
  // Nothing here may be called then, nor the session be destroyed: both would reach into what the worker still uses.
  bool forked() const;
  int pid() const { return pid_; }
  // Its pid, where it is on this machine.
  int driver() const { return ticket_.driver; }
  bool stop_requested() const { return stop_requested_; }

  static void exit_process(const std::string& why);

 private:
  Session(Ticket ticket, LostHandler lost, const base::Clock& clock);

  Result<void> connect();
  asio::awaitable<void> read_loop();
  void receive(wire::Message message);
  void beat();
  void lose(const std::string& why);

  void interrupt();
  void cancel();
  void answer_stack_request(std::int64_t id);
  void answer_wait_request(std::int64_t id);
  struct PendingRequests {
    std::vector<std::int64_t> ids;
    std::set<int> threads;  // that wait for the answers

    bool operator==(const PendingRequests&) const = default;
  };
  PendingRequests pending_requests();
  std::string closed() const;  // why nothing can be asked any more; empty: it can
  // Queues it for the I/O thread. An error, and nothing is sent, where the controller takes no message of that size: it
  // would look like a lost connection.
  Result<void> post(const wire::Message& message);
  // For what is never large.
  void tell(const wire::Message& message);
  Result<std::shared_ptr<CheckpointWriter>> writer();
  void drain();
  void remember(std::int64_t index, const std::string& folder, UploadMode mode);
  Result<void> leave_with(std::int64_t index, CheckpointWriter& writer);
  // Sends a request and waits for its reply. A timeout is an error with the code kTimeout.
  template <typename Request>
  Result<Value> ask(Request request, std::optional<base::Seconds> timeout = {});

  const int pid_;  // of the worker
  Ticket ticket_;
  LostHandler lost_;
  const base::Clock& clock_;
  wire::Start start_;
  std::shared_ptr<storage::Files> files_;  // shared with the writer

  // Of the I/O thread.
  asio::io_context io_{1};
  std::shared_ptr<wire::Channel> channel_;
  asio::steady_timer heartbeat_{io_};
  asio::steady_timer interrupt_timer_{io_};
  double heartbeat_s_ = 0.5;
  double lease_s_ = 30.0;
  std::int64_t beats_ = 0;
  base::MonotonicTime heard_;
  std::optional<base::TickWatch> beat_watch_;
  bool leaving_ = false;

  // Shared, under the mutex.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<wire::Start> pending_start_;
  struct Pending {
    std::promise<Result<Value>> answer;
    int thread = 0;
  };
  std::map<std::int64_t, Pending> requests_;
  std::int64_t next_request_ = 1;
  std::int64_t next_report_ = 0;
  std::int64_t acked_ = 0;
  std::int64_t next_collective_ = 0;
  bool goodbye_ = false;
  bool ready_ = true;  // not in a function
  std::int64_t leave_at_ = -1;
  std::int64_t committed_ = -1;                       // the newest report whose checkpoint is known to be
  std::map<std::int64_t, std::string> on_their_way_;  // folders of ASYNC reports that are not
  std::pair<std::int64_t, std::string> newest_{-1, {}};
  std::function<void()> interrupt_;
  std::optional<PreemptionInfo> preemption_;
  std::string lost_why_;  // not empty: the connection is gone

  std::atomic<bool> stop_requested_ = false;
  std::atomic<bool> cancelled_ = false;
  std::atomic<bool> may_decline_ = false;

  std::jthread stacks_thread_;  // while stacks are collected
  std::jthread thread_;         // stops before what it uses
  // Under the mutex. Shared with the reports under way: a thread that the function has left behind may be in one when
  // the attempt ends. Last: what it finishes is sent by the thread above.
  std::shared_ptr<CheckpointWriter> writer_;
};

}  // namespace trireme::worker
