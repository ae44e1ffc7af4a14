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
#include "checkpoint/scratch_folder.h"
#include "wire/client.h"
#include "wire/ticket.h"
#include "worker/checkpoint_writer.h"
#include "worker/driver_file_system.h"

namespace trireme::worker {

using base::Result;

// The information that a worker process needs to join its run; see control/controller.cpp.
struct Ticket : wire::Ticket {
  int rank = 0;
  int attempt = 0;
  int driver = 0;         // pid of the driver, or of the agent on this machine: it may end the worker with SIGTERM
  std::string host = {};  // the name of this machine; empty: its host name
  // Of the agent that holds checkpoints in memory; empty: there is none.
  std::string memory_address = {};
  std::string memory_secret = {};
};

Result<Ticket> parse_ticket(const std::string& json);

struct ReportOptions {
  std::optional<std::string> checkpoint_name = {};
  Value validation = {};  // null: none
  Dict positions = {};    // positions in the data by name; stored with the checkpoint
  Dict data = {};         // read so far: rows, bytes, wait_s, logged
};

// Workers that will be lost, as announced.
struct PreemptionInfo {
  Dict nodes;           // host -> ranks on it that will be lost
  double deadline = 0;  // seconds since 1970
  std::string why;
};

Dict to_dict(const PreemptionInfo& info);

// A worker's side of the connection. The user's thread makes the calls; a separate thread does the I/O, so that
// heartbeats and reports continue while the function computes, even if it holds the interpreter lock.
class Session {
 public:
  // Called on the I/O thread when the connection to the controller is lost. The process has nothing left to do: the
  // default handler prints a message and exits.
  using LostHandler = std::function<void(const std::string& why)>;

  static Result<std::unique_ptr<Session>> join(const Ticket& ticket, LostHandler lost = exit_process);
  // The clock must outlive the session.
  static Result<std::unique_ptr<Session>> join(const Ticket& ticket, LostHandler lost, const base::Clock& clock);
  ~Session();

  // Blocks until every rank is connected and the controller sends the function: once, and again after every
  // become_ready().
  Result<wire::Start> wait_start();
  const wire::Start& start() const { return start_; }

  // `holds`: what is expensive to recreate in this process, for example a CUDA context; empty: nothing.
  void entered(std::string holds = {});

  // The run's storage, if it cannot be opened by its URI alone (Python file systems). Call it before the first report.
  void set_files(std::shared_ptr<storage::Files> files) { files_ = std::move(files); }

  // Returns as soon as the report is queued; with a checkpoint, as its mode defines. Blocks only while thousands of
  // reports are unacknowledged. Returns the folder of the checkpoint in the run's storage.
  Result<std::optional<std::string>> report(Metrics metrics, std::optional<CheckpointSource> checkpoint = {},
                                            ReportOptions options = {});

  // The folder, in the run's storage, of the newest checkpoint that this rank has stored. The checkpoint of an ASYNC
  // report counts only after it is committed.
  std::optional<std::string> newest_checkpoint();

  // The checkpoints that the run retains, worst first, after every checkpoint that this rank has reported is committed
  // (and validated). After the timeout: those that are known.
  Result<List> list_checkpoints(bool validated, std::optional<base::Seconds> timeout);

  // Reports that the function returned, and waits until it has returned on every rank, or another attempt starts.
  Result<void> finish(Value value, bool pickled);
  // Reports the failure; returns after the message has left this process.
  void fail(wire::Failed failure);

  // The function must be left for the next attempt: blocked calls return errors, and the interrupt is called.
  bool cancelled() const { return cancelled_; }
  // While cancelled: whether the process may exit instead of being kept.
  bool may_decline() const { return may_decline_; }
  // Interrupts the user's thread in its function. Called on the I/O thread, repeatedly until become_ready().
  void set_interrupt(std::function<void()> interrupt);
  // For this attempt: what to do as soon as it is cancelled, on a separate thread, while the function may be blocked in
  // native code that no interrupt ends. It aborts the function's collectives; the controller learns when it returns.
  void set_on_cancel(std::function<void()> on_cancel);
  // After the function: whether another attempt follows. If so, the hook above has returned. False: the run is over.
  bool wait_for_cancel();
  // The function has ended: this process is ready for the next attempt.
  void become_ready();

  // The preemption announced to this attempt, if any.
  std::optional<PreemptionInfo> preemption();
  // This process was asked to end: notifies the controller, so that a last checkpoint can be created.
  void announce_own_preemption(const std::string& why);

  Result<void> store_set(const std::string& key, std::string value);
  Result<std::string> store_get(const std::string& key, base::Seconds timeout);
  Result<std::int64_t> store_add(const std::string& key, std::int64_t amount);
  Result<void> store_wait(const std::vector<std::string>& keys, base::Seconds timeout);
  // The values of all keys, when all of them are set.
  Result<std::vector<std::string>> store_multi_get(const std::vector<std::string>& keys, base::Seconds timeout);
  Result<void> store_append(const std::string& key, std::string value);
  // Whether all keys are set now.
  Result<bool> store_check(const std::vector<std::string>& keys);
  Result<bool> store_delete(const std::string& key);
  Result<std::string> store_compare_set(const std::string& key, std::string expected, std::string desired);
  Result<std::int64_t> store_count();

  // Collective operations of this process fail after this time: the controller collects the stacks of a gang without
  // progress before.
  void set_collective_timeout(base::Seconds timeout);

  Result<void> barrier();
  // Rank 0's data, on every rank.
  Result<std::string> broadcast(std::optional<std::string> data);

  // Whether this is a child that the worker has forked: it has a copy of the session's memory, but not the I/O thread.
  // It must neither call nor destroy the session: both would affect resources that the worker still uses.
  bool forked() const;
  int pid() const { return pid_; }
  // Pid of the driver, if it is on this machine.
  int driver() const { return ticket_.driver; }
  bool stop_requested() const { return stop_requested_; }

  static void exit_process(const std::string& why);

 private:
  // Reports in flight: enough to never wait in practice, few enough to bound memory.
  static constexpr std::int64_t kReportWindow = 4096;
  static constexpr const char* kCancelled = "this attempt is over";
  static constexpr std::size_t kLongestText = std::size_t{1} << 20;  // in a message

  Session(Ticket ticket, LostHandler lost, const base::Clock& clock);

  Result<void> connect();
  asio::awaitable<void> read_loop();
  void receive(wire::Message message);
  void beat();
  void lose(const std::string& why);

  void interrupt();
  void cancel();
  void abort_collectives();
  void answer_stack_request(std::int64_t id);
  void answer_wait_request(std::int64_t id);
  struct PendingRequests {
    std::vector<std::int64_t> ids;
    std::set<int> threads;  // threads that wait for the answers

    bool operator==(const PendingRequests&) const = default;
  };
  PendingRequests pending_requests();
  std::string closed() const;  // why no request can be sent; empty: it can
  // Queues it for the I/O thread. Fails, without sending, if the message is too large for the controller, which would
  // close the connection.
  Result<void> post(const wire::Message& message);
  // For messages that are never large.
  void tell(const wire::Message& message);
  Result<std::shared_ptr<CheckpointWriter>> writer();
  void drain();
  Result<void> open_files_of_driver(wire::Start& start);
  Result<void> open_memory(const wire::Start& start);
  void send_data_logs();
  void remember(std::int64_t index, const std::string& folder, CheckpointUploadMode mode);
  Result<void> leave_with(std::int64_t index, CheckpointWriter& writer);
  // Sends a request and waits for its reply. A timeout is an error with the code kTimeout.
  template <typename Request>
  Result<Value> ask(Request request, std::optional<base::Seconds> timeout = {});

  const int pid_;  // pid of the worker
  Ticket ticket_;
  LostHandler lost_;
  const base::Clock& clock_;
  wire::Start start_;
  std::shared_ptr<storage::Files> files_;  // shared with the writer

  // On a node that does not see the driver's files. Shared with the file systems opened for its scheme.
  std::shared_ptr<DriverFileSystem> driver_files_;
  std::shared_ptr<NodeMemory> memory_;                  // null: nodes hold no checkpoints
  std::optional<checkpoint::ScratchFolder> data_logs_;  // stands for the run folder
  std::mutex data_logs_mutex_;
  std::map<std::string, std::size_t> data_logs_sent_;  // bytes, by name

  // Used by the I/O thread.
  asio::io_context io_{1};
  std::shared_ptr<wire::SocketChannel> channel_;
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
  std::int64_t committed_ = -1;                       // the newest report whose checkpoint is known to be committed
  std::map<std::int64_t, std::string> on_their_way_;  // folders of ASYNC reports not known to be committed
  std::pair<std::int64_t, std::string> newest_{-1, {}};
  std::function<void()> interrupt_;
  std::function<void()> on_cancel_;
  bool aborting_ = false;  // on_cancel_ runs
  std::optional<PreemptionInfo> preemption_;
  std::string lost_why_;  // set after the connection is lost

  std::atomic<bool> stop_requested_ = false;
  std::atomic<bool> cancelled_ = false;
  std::atomic<bool> may_decline_ = false;

  std::jthread stacks_thread_;  // while stacks are collected
  std::jthread cancel_thread_;  // runs on_cancel_; joined by become_ready()
  std::jthread thread_;         // stops before the members it uses
  // Guarded by the mutex. Shared with reports in progress: a thread that the function left behind may still be in one
  // when the attempt ends. Last, because the thread above sends what the writer finishes.
  std::shared_ptr<CheckpointWriter> writer_;
};

}  // namespace trireme::worker
