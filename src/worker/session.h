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
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
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
};

Result<Ticket> parse_ticket(const std::string& json);

struct ReportOptions {
  std::optional<std::string> checkpoint_name = {};
  Value validation = {};  // null: none
};

// A worker's side of the connection. The user's thread calls; a thread of its own does the I/O, so that heartbeats and
// reports go on while the function computes, whatever the interpreter lock does.
class Session {
 public:
  // Called on the I/O thread when the controller is gone. The process has nothing left to work for: the default says so
  // and exits.
  using LostHandler = std::function<void(const std::string& why)>;

  static Result<std::unique_ptr<Session>> join(const Ticket& ticket, LostHandler lost = exit_process);
  ~Session();

  // Blocks until every rank is there and the controller says what to run.
  Result<wire::Start> wait_start();
  const wire::Start& start() const { return start_; }

  void entered();

  // The run's storage, where it cannot be opened from its URI alone (Python's file systems). Before the first report.
  void set_files(std::shared_ptr<storage::Files> files) { files_ = std::move(files); }

  // Returns as soon as the report is queued, and with a checkpoint as its mode says. Waits only while thousands of
  // reports are not recorded yet. Returns the folder of the checkpoint in the run's storage.
  Result<std::optional<std::string>> report(Metrics metrics, std::optional<CheckpointSource> checkpoint = {},
                                            ReportOptions options = {});

  // What the run retains, worst first, once every checkpoint that this rank has reported is committed (and validated).
  // After the timeout: what is known.
  Result<List> list_checkpoints(bool validated, std::optional<base::Seconds> timeout);

  // Says that the function returned, and waits until every rank has said so.
  Result<void> finish(Value value, bool pickled);
  // Says that it failed. The controller ends the process; this returns once the message is sent.
  void fail(wire::Failed failure);

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

  bool stop_requested() const { return stop_requested_; }

  static void exit_process(const std::string& why);

 private:
  Session(Ticket ticket, LostHandler lost);

  Result<void> connect();
  asio::awaitable<void> read_loop();
  void receive(wire::Message message);
  void beat();
  void lose(const std::string& why);

  void post(wire::Message message);
  Result<CheckpointWriter*> writer();
  void drain();
  // Sends a request and waits for its reply. A timeout is an error whose text starts with "timed out".
  template <typename Request>
  Result<Value> ask(Request request, std::optional<base::Seconds> timeout = {});

  Ticket ticket_;
  LostHandler lost_;
  wire::Start start_;
  std::shared_ptr<storage::Files> files_;  // shared with the writer

  // Of the I/O thread.
  asio::io_context io_{1};
  std::shared_ptr<wire::Channel> channel_;
  asio::steady_timer heartbeat_{io_};
  double heartbeat_s_ = 0.5;
  double lease_s_ = 30.0;
  std::int64_t beats_ = 0;
  base::MonotonicTime heard_;
  bool leaving_ = false;

  // Shared, under the mutex.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<wire::Start> pending_start_;
  std::map<std::int64_t, std::promise<Result<Value>>> requests_;
  std::int64_t next_request_ = 1;
  std::int64_t next_report_ = 0;
  std::int64_t acked_ = 0;
  std::int64_t next_meeting_ = 0;
  bool goodbye_ = false;
  std::string lost_why_;  // not empty: the connection is gone

  std::atomic<bool> stop_requested_ = false;

  std::jthread thread_;  // stops before what it uses
  // Under the mutex until it is made. Last: what it finishes is sent by the thread above.
  std::unique_ptr<CheckpointWriter> writer_;
};

}  // namespace trireme::worker
