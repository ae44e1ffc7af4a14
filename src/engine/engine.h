#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/fields.h"
#include "base/result.h"
#include "trireme/config.h"
#include "wire/address.h"

// An engine reserves room for a gang, starts one process per bundle and reports how each process ends.
//
// Contract: every call returns immediately. Results arrive as events, in order per gang, from a thread of the engine.
// After release() returns, no further event of that gang is delivered. A gang never changes size: reserve another gang
// to grow, release one to shrink.

namespace trireme::engine {

using base::Result;

enum class Strategy { kPack, kSpread, kStrictPack, kStrictSpread };

Result<Strategy> parse_strategy(const std::string& name);
const char* to_string(Strategy strategy);

struct Gpu {
  std::string id;          // as in CUDA_VISIBLE_DEVICES: an index, a UUID or a MIG device
  std::string uuid = {};   // identifies the device to other drivers; empty: unknown, the id does
  std::string type = {};   // "NVIDIA H100"; empty when only declared
  double available = 1.0;  // the unreserved share of the device

  const std::string& device() const { return uuid.empty() ? id : uuid; }
};

struct NodeInfo {
  std::string id;
  std::string host;
  Resources total;
  Resources available;
  std::vector<Gpu> gpus;
  // Whether "CPU" in `total` is a limit. Undeclared CPUs of the local machine are time-shared.
  bool cpus_declared = false;
  // Resources in use by gangs, if the engine reports them. For time-shared CPUs only those of this driver; may exceed
  // the total.
  Resources in_use = {};
};

// The resources of a gang: one bundle per worker, plus those of the trainer itself.
struct GangRequest {
  std::string run_name;
  std::vector<Resources> bundles;
  Resources trainer;
  Strategy strategy = Strategy::kPack;
  std::optional<std::string> accelerator_type;
  Labels label_selector = {};
  base::Seconds timeout{60.0};
  // Not part of the run's minimum: the engine may reclaim it (Reclaim), and refuses it at once if there is no room now.
  bool optional = false;
};

// The placement of one bundle of a gang. Bundles on one node are adjacent in the list, so their ranks are adjacent too.
// The order may therefore differ from the request; `resources` identifies the bundle.
struct Slot {
  std::string node_id;
  std::string host;
  Resources resources;
  std::vector<std::string> gpus;  // ids of the devices that this bundle may use, shared ones included

  bool operator==(const Slot&) const = default;
};

using GangId = std::uint64_t;

// A Python worker can be forked from a process that has already imported its frameworks.
#define TRIREME_PYTHON_START(FIELD)                                                    \
  FIELD(std::vector<std::string>, preload, {}, "modules that are imported beforehand") \
  FIELD(std::vector<std::string>, sys_path, {}, "sys.path of the worker")              \
  FIELD(std::vector<std::string>, argv, {}, "sys.argv of the worker")
TRIREME_STRUCT(PythonStart, TRIREME_PYTHON_START)

struct ProcessSpec {
  std::string label;                       // "rank 3", for messages
  std::vector<std::string> argv;           // executed if the process cannot be forked
  std::map<std::string, std::string> env;  // the complete environment of the process
  std::string cwd;
  std::string log_path;  // stdout and stderr are appended to it
  std::string ticket;    // JSON; passed on the descriptor named by $TRIREME_TICKET_FD, never on a command line
  // Ids of the GPUs that the process sees, in this order; the engine sets the variables of their kind. Empty: `env` is
  // left unchanged.
  std::vector<std::string> visible_gpus = {};
  std::optional<PythonStart> python;
};

struct ExitStatus {
  enum class Kind { kCode, kSignal, kUnknown };
  Kind kind = Kind::kUnknown;
  int value = 0;  // the exit code or the signal's number

  bool operator==(const ExitStatus&) const = default;
};

// "exit code 3", "signal SIGKILL (9)", "an unknown cause".
std::string to_string(const ExitStatus& status);

struct Reserved {
  GangId gang;
  std::vector<Slot> slots;
};
struct ReserveFailed {
  GangId gang;
  base::Error error;
};
// The request can be satisfied, but the room is in use. Sent once; Reserved or ReserveFailed follows.
struct ReserveWaiting {
  GangId gang;
  std::string why;
};
struct Started {
  GangId gang;
  int bundle;
  int pid;
  bool forked;  // from a warm process
};
struct StartFailed {
  GangId gang;
  int bundle;
  base::Error error;
  bool node_lost = false;  // another node may be able to start it
};
struct Exited {
  GangId gang;
  int bundle;
  int pid;
  ExitStatus status;
  std::string out_of_memory = {};  // evidence that the kernel killed it for lack of memory; empty: none
  std::string node_lost = {};      // why its node counts as lost; empty: the process has ended by itself
};
// A node of the gang is lost. The rest of its room stays reserved until release(). Sent before the Exited events of the
// processes there.
struct GangLost {
  GangId gang;
  std::string why;
};
// The engine reclaims room of the gang. The owner releases it when convenient, at the latest after `seconds`.
struct Reclaim {
  GangId gang;
  std::string why;
  std::optional<base::Seconds> seconds = {};  // empty: no deadline
  std::string node_id = {};                   // only the room on this node; empty: all of it
  bool elsewhere = false;                     // there is, or may be, room on other nodes
};
// There may be more room than before.
struct RoomGrew {
  GangId gang;
};

using EngineEvent =
    std::variant<Reserved, ReserveFailed, ReserveWaiting, Started, StartFailed, Exited, Reclaim, RoomGrew, GangLost>;
using EventHandler = std::function<void(EngineEvent)>;

// How to reach the checkpoints that nodes hold in the memory of their agents.
struct NodeMemory {
  std::string id;  // of the engine, in greetings
  std::string secret;
  std::vector<std::string> addresses;  // of the agents that are connected
};

class Engine {
 public:
  virtual ~Engine() = default;

  // Fails at once, with the arithmetic and the options, if this engine can never satisfy the request.
  virtual Result<void> check(const GangRequest& request) const = 0;

  // All or nothing. `handler` receives this gang's events until release().
  virtual GangId reserve(GangRequest request, EventHandler handler) = 0;
  // Kills the gang's processes and frees its room. Returns after its processes have exited. Must not be called from a
  // handler.
  virtual void release(GangId gang) = 0;

  // Answered with Started or StartFailed, later with Exited. A bundle runs one process at a time.
  virtual void start(GangId gang, int bundle, ProcessSpec spec) = 0;
  // Sends SIGTERM to the process group, and SIGKILL after the grace period. A grace of 0 sends SIGKILL at once. Does
  // nothing if the bundle has no process.
  virtual void kill(GangId gang, int bundle, base::Seconds grace) = 0;

  virtual std::vector<NodeInfo> nodes() const = 0;

  // Starts the processes that Python workers are forked from, which import these modules in the background. Reads the
  // environment, so no other thread may change it during the call.
  virtual void warm_up(std::vector<std::string> /*preload*/) {}

  // As the user names it.
  virtual std::string name() const { return "local"; }
  // Whether a request that check() refuses may succeed later, because the cluster can add nodes.
  virtual bool may_add_nodes() const { return false; }

  // Where a controller listens, so that workers reach it; nullopt: workers are on this machine.
  virtual std::optional<wire::Address> listen_address() const { return std::nullopt; }
  virtual NodeMemory node_memory() const { return {}; }
};

}  // namespace trireme::engine

namespace trireme::base {
TRIREME_STRUCT_FIELDS(engine::PythonStart, TRIREME_PYTHON_START)
}  // namespace trireme::base
