#pragma once

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/host.h"
#include "base/tick_watch.h"
#include "control/collective_rendezvous.h"
#include "control/committer.h"
#include "control/decide.h"
#include "control/event_log.h"
#include "control/hang_report.h"
#include "control/key_value_store.h"
#include "control/memory_collector.h"
#include "control/memory_tier.h"
#include "control/metrics_writer.h"
#include "control/ranks.h"
#include "control/restart_times.h"
#include "control/storage_server.h"
#include "engine/engine.h"
#include "wire/server.h"

namespace trireme::control {

// The configuration of the controller.
struct RunPlan {
  std::string name;
  std::string id;
  std::string path;                       // the run folder on this machine, with event log and worker logs; exists
  std::shared_ptr<storage::Files> files;  // storage of the checkpoints; shared with the Run that opened it
  std::string storage_path;               // the run's folder in the storage
  // Whether this driver still owns the run's folder, if no lock protects it; null: it does.
  std::function<base::Result<void>()> permit;
  std::string storage_uri;  // for workers that open the storage themselves; empty: a local folder
  // For nodes that do not share this machine's file system: folders with code that workers import, their digests, and
  // the working directory.
  std::map<std::string, std::string> code;
  std::string folder;
  std::string trainer;
  std::string secret;
  wire::Address listen;
  engine::GangRequest gang;
  Rules rules;
  Bytes payload;
  std::optional<std::string> checkpoint;  // to start from
  bool checkpoint_in_storage = true;      // false: at a path that the user set
  Dict positions;                         // positions in the data of that checkpoint
  std::vector<KeptCheckpoint> kept;       // checkpoints of earlier starts of the run
  std::int64_t first_report = 0;
  ReportCount reports;                  // of earlier starts
  std::optional<Metrics> last_metrics;  // of earlier starts: for the result, if this start reports none
  int first_attempt = 0;
  Dict metadata;
  Dict started;                       // additional fields of the run_started event
  std::vector<std::string> warnings;  // found during the preparation

  double heartbeat_s = 0.3;
  double heartbeat_timeout_s = 1.2;
  double lease_s = 30.0;
  // Whether the workers are processes of this machine, which the controller can look up by their pids.
  bool workers_here = true;

  double hang_timeout_s = 0.0;  // 0: hangs are not detected
  // Changes the capacity of the engine's machine; empty: not supported.
  std::function<base::Result<Dict>(const wire::SetCapacity& asked)> set_capacity;

  // Creates the process of a worker; `ticket` has everything that it needs to join.
  std::function<engine::ProcessSpec(int rank, int attempt, const engine::Slot& slot, std::string ticket,
                                    std::string log_path)>
      make_process;
  // The last lines of a worker's log, for the error message.
  std::function<std::vector<std::string>(const std::string& path)> log_tail;
};

struct RunEnd {
  Outcome outcome = Outcome::kNone;
  std::string error;
  std::string note;
  std::vector<Failure> failures;
  ReturnValue return_value;
  std::optional<Metrics> metrics;
  std::optional<std::string> checkpoint;
  bool checkpoint_in_storage = true;
  std::vector<KeptCheckpoint> checkpoints;  // worst first
  double seconds = 0;
  int attempts = 0;
  int last_attempt = 0;  // its number: a resumed run continues counting
  std::int64_t reports = 0;
};

std::string log_path(const std::string& run_path, int attempt, int rank);
// The files of the ranks that have them in the memory of nodes.
std::vector<storage::FileRecord> files_in_memory(const ReadyCheckpoint& ready);

// The loop around decide(): converts messages, engine events and timers into events, executes the decisions and writes
// the event log. Everything runs on one thread; the public functions are thread-safe.
class Controller final : private wire::ServerHandler {
 public:
  // Called on the controller's thread with every event when it is recorded. Must not block.
  using EventSink = std::function<void(const Dict& event)>;

  Controller(RunPlan plan, engine::Engine& engine, const base::Clock& clock, EventSink sink);
  // Stops the run at once if it is still running.
  ~Controller();

  // Opens the event log and the socket; then the run proceeds by itself.
  base::Result<void> start();
  void stop(std::string why, bool hard);
  // Records a warning.
  void warn(std::string message);
  // Ranks (all if empty) will be lost in `seconds`.
  void announce_preemption(PreemptionAnnounced announced);
  // The answer to a validation_requested event.
  void finish_validation(ValidationEnded ended);

  bool finished() const { return finished_; }
  // Returns when the run has ended.
  RunEnd wait();
  const wire::Address& address() const { return server_->address(); }
  std::uint64_t refused_peers() const { return server_->refused_peers(); }

 private:
  struct Peer {
    std::shared_ptr<wire::Channel> channel;
    base::MonotonicTime heard;
    base::MonotonicTime reported;  // or when the attempt started
    // The number of the next report. None: the rank has not been started.
    std::optional<std::int64_t> next_report;
    std::int64_t reports = 0;  // reports received up to that number; 0: none in this attempt
    std::int64_t acked = 0;
  };

  base::Result<void> start_storage_server();
  // Checkpoints that nodes hold in memory; see controller_memory.cpp.
  void commit_from_memory(ReadyCheckpoint ready, base::Fd event_log);
  struct MemoryCommit {
    std::shared_ptr<const ReadyCheckpoint> ready;  // this and the next are shared by copies of callbacks
    int attempt = 0;
    std::shared_ptr<base::Fd> event_log;
    base::MonotonicTime began;
    bool in_memory = false;  // committed before the storage has the files
  };
  void store_collected(const MemoryCommit& commit, const base::Result<std::string>& folder);
  void ended(CommitEnded end);
  void note_stored(std::int64_t index);
  void use_memory(const std::string& unreachable);  // why; empty: agents can be reached
  void free_memory();
  struct ResumePoint;
  // The number of the newest one that is not lost; `why`: what the newer ones lack.
  static std::size_t newest_available(MemoryCollector& collector, const std::vector<ResumePoint>& points,
                                      std::string& why);
  EarlierStart resume_earlier(checkpoint::Origin origin, const std::string& why);
  void loop();
  void handle(Event event);
  void execute(Action action);

  void run(const ReserveGang&);
  void run(const StartProcess&);
  void run(const SendStart&);
  void run(const SendGoodbye&);
  void run(const KillProcess&);
  void run(const ReleaseGang&);
  void run(const ArmTimer&);
  void run(const DisarmTimer&);
  void run(Record&);
  void run(RecordFailure&);
  void run(Commit&);
  void run(const RemoveCheckpoint&);
  void run(const UpdateManifest&);
  void run(const TellCommitted&);
  void run(const SendStop&);
  void run(const ResetAttempt&);
  void run(const SettleStorage&);
  void run(const SendCancel&);
  void run(const SendLeaveAt&);
  void run(const SendPreemption&);
  void run(const Finish&);

  void engine_event(int gang, engine::EngineEvent event);
  int rank_at(Seat seat) const;  // -1: the seat is empty
  const engine::GangId& gang_of(int rank) const;
  // Does nothing if it is not connected.
  void send(int rank, const wire::Message& message);
  void send_to_all(const wire::Message& message);
  void store_return_value() const;
  void time_restart(const Dict& event);
  std::string state_of(std::size_t rank) const;
  bool may_starve(std::size_t rank) const;
  void append(Dict event, Dict unlogged = {});  // unlogged: fields that only the sink gets
  void warn_of_metrics();
  void flush_soon();
  void flush_after_this_turn();
  void flush(bool to_disk);
  void arm(Timer timer, double seconds, bool again);
  void tick();
  void forgive(base::MonotonicTime now, base::MonotonicTime::duration late);
  void check_heartbeats(base::MonotonicTime now);
  void warn_of_stall(base::MonotonicTime now);
  void look_for_hang(base::MonotonicTime now);
  int likely_culprit() const;
  void look_for_timeout(base::MonotonicTime now);
  std::string watchdog_of(int rank, const engine::ExitStatus& status, const std::string& log) const;
  void set_aside_flight_records() const;
  void look_for_deadlock();
  std::map<int, RankWait> waits_for_good() const;
  // Requests the stacks of every rank and calls back with all of them, written to a file, when they have arrived or
  // after a timeout.
  using StacksWritten = std::function<void(const HangReport& report, const std::string& path)>;
  void collect_stacks(const std::string& title, StacksWritten done);
  void finish_stacks();
  void acknowledge(Peer& peer);
  void answer_lists();

  base::Result<wire::Welcome> admit(const wire::Hello& hello) override;
  void opened(const std::shared_ptr<wire::Channel>& channel) override;
  void received(const std::shared_ptr<wire::Channel>& channel, wire::Message message) override;
  void closed(const std::shared_ptr<wire::Channel>& channel, const base::Error& why) override;
  void refused(const std::string& from, const base::Error& why) override;

  bool current(const wire::Channel& channel) const;
  Peer& peer_of(const wire::Channel& channel);
  void refuse(wire::Channel& channel, const std::string& why);
  // Messages from workers, one overload per type.
  void take(wire::Channel& channel, wire::Heartbeat& message);
  void take(wire::Channel& channel, wire::Entered& message);
  void take(wire::Channel& channel, wire::Report& message);
  void take(wire::Channel& channel, wire::UploadDone& message);
  void take(wire::Channel& channel, wire::Done& message);
  void take(wire::Channel& channel, wire::Failed& message);
  void take(wire::Channel& channel, wire::StoreSet& message);
  void take(wire::Channel& channel, wire::StoreGet& message);
  void take(wire::Channel& channel, wire::StoreAdd& message);
  void take(wire::Channel& channel, wire::StoreWait& message);
  void take(wire::Channel& channel, wire::StoreMultiGet& message);
  void take(wire::Channel& channel, wire::StoreAppend& message);
  void take(wire::Channel& channel, wire::StoreCheck& message);
  void take(wire::Channel& channel, wire::StoreDelete& message);
  void take(wire::Channel& channel, wire::StoreCompareSet& message);
  void take(wire::Channel& channel, wire::StoreCount& message);
  void take(wire::Channel& channel, wire::Barrier& message);
  void take(wire::Channel& channel, wire::Broadcast& message);
  void take(wire::Channel& channel, wire::ListCheckpoints& message);
  void take(wire::Channel& channel, wire::Drained& message);
  void take(wire::Channel& channel, wire::Aborted& message);
  void take(wire::Channel& channel, wire::Ready& message);
  void take(wire::Channel& channel, wire::PreemptionNotice& message);
  void take(wire::Channel& channel, wire::Stack& message);
  void take(wire::Channel& channel, wire::Waits& message);
  void take(wire::Channel& channel, wire::CollectiveTimeout& message);
  void take(wire::Channel& channel, wire::DataLog& message);
  // Messages from the command line.
  void serve(wire::Channel& channel, wire::StopRun& message);
  void serve(wire::Channel& channel, wire::GetStacks& message);
  void serve(wire::Channel& channel, wire::PreemptRun& message);
  void serve(wire::Channel& channel, wire::SetCapacity& message);
  template <typename T>
  void serve(wire::Channel& channel, T& message);
  // Workers must not send any other message.
  template <typename T>
  void take(wire::Channel& channel, T& message);

  RunPlan plan_;
  engine::Engine& engine_;
  const base::Clock& clock_;
  EventSink sink_;

  asio::io_context io_{1};
  std::optional<EventLog> log_;
  std::unique_ptr<wire::Server> server_;
  std::unique_ptr<StorageServer> storage_server_;  // null: all workers see the files of this machine
  struct ArmedTimer {
    asio::steady_timer timer;
    std::uint64_t generation = 0;  // detects a timer that fires in the same turn in which it is disarmed
  };
  std::map<Timer, ArmedTimer> timers_;
  asio::steady_timer tick_timer_{io_};
  asio::steady_timer flush_timer_{io_};
  bool flush_pending_ = false;
  bool flush_posted_ = false;

  RunState state_;
  std::map<int, engine::GangId> gangs_;
  std::vector<Peer> peers_;
  const std::string host_ = base::host_name();
  std::vector<Place> places_;
  std::map<Seat, int> ranks_;
  KeyValueStore store_;
  CollectiveRendezvous collectives_;
  std::optional<std::string> checkpoint_;
  bool checkpoint_in_storage_ = true;
  std::int64_t checkpoint_index_ = -1;
  MemoryTier memory_;
  // The checkpoints that an attempt can start from, oldest first: one that is in the storage, or what the run started
  // from, and newer ones that only nodes hold.
  struct ResumePoint {
    std::optional<std::string> path;
    bool in_storage = true;
    MemoryCollector::Checkpoint held;
    Dict positions;
    bool stored = true;
  };
  std::vector<ResumePoint> resume_points_;
  std::int64_t freed_below_ = 0;
  bool memory_used_ = true;  // false: the next attempt stores checkpoints on this machine
  int waiting_commits_ = 0;  // that need files from nodes in the storage first; later ones must not overtake them
  struct ListRequest {
    std::weak_ptr<wire::Channel> channel;
    wire::ListCheckpoints message;
  };
  std::vector<ListRequest> list_requests_;
  base::MonotonicTime mirrored_;
  base::MonotonicTime run_began_;
  base::MonotonicTime attempt_began_;
  int entered_ = 0;         // ranks that have entered the function
  double silence_s_ = 0.0;  // of the rank that was last declared lost
  base::TickWatch tick_watch_{base::Seconds(plan_.heartbeat_s), clock_.now()};
  RestartTimes restart_times_;
  struct StackRound {
    std::int64_t id = 0;
    std::string title;
    std::vector<RankPlace> ranks;
    int missing = 0;
    std::vector<StacksWritten> done;
  };
  std::optional<StackRound> stack_round_;
  std::int64_t stack_rounds_ = 0;
  asio::steady_timer stack_timer_{io_};
  // All ranks wait, and are asked whether one of their threads could still end the wait.
  struct WaitRound {
    std::int64_t id = 0;
    std::uint64_t changes = 0;  // changes of the store at the beginning
    std::set<int> missing;      // ranks that have not answered
    std::map<int, std::vector<std::int64_t>> requests;
    bool refuted = false;
  };
  std::optional<WaitRound> wait_round_;
  std::int64_t wait_rounds_ = 0;
  bool hang_told_ = false;             // for the current silence
  double collective_timeout_s_ = 0.0;  // the shortest of this attempt; 0: unknown
  std::optional<base::MonotonicTime> timeout_looked_;
  std::string timeout_stacks_;  // the file with the stacks of this attempt's last look
  std::int64_t stalled_index_ = -1;
  base::MonotonicTime stalled_since_;

  std::atomic<bool> finished_ = false;
  std::mutex end_mutex_;
  std::condition_variable end_changed_;
  RunEnd end_;

  std::mutex metrics_mutex_;
  // From the writer's thread, until it is recorded: a message posted at the end would not be handled any more.
  std::optional<std::string> metrics_warning_;
  std::optional<MetricsWriter> metrics_;  // after io_, like the next member: it posts its warnings there
  std::optional<Committer> committer_;    // posts its results there
  // Shared with jobs of the committer. Null: all workers see the files of this machine, or the storage is remote.
  std::shared_ptr<MemoryCollector> collector_;
  std::jthread thread_;  // last: stops first
};

}  // namespace trireme::control
