#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "trireme/config.h"

// Where processes come from. An engine reserves room for a gang, starts one process per bundle and tells how each ends.
//
// Contract: every call returns at once; answers come as events, in order per gang, from a thread of the engine. After
// release() returns no further event of that gang is delivered. A gang never changes: grow by another reserve, shrink
// by a release.

namespace trireme::engine {

using base::Result;

enum class Strategy { kPack, kSpread, kStrictPack, kStrictSpread };

Result<Strategy> parse_strategy(const std::string& name);
const char* to_string(Strategy strategy);

struct Gpu {
  int index = 0;
  std::string type;        // "NVIDIA H100"; empty when only declared
  double available = 1.0;  // the share of the device that nobody has reserved
};

struct NodeInfo {
  std::string id;
  std::string host;
  Resources total;
  Resources available;
  std::vector<Gpu> gpus;
  // Whether "CPU" in `total` is a limit. Undeclared CPUs of the local machine are time-shared.
  bool cpus_declared = false;
  // What gangs have of it, where an engine tells. Of time-shared CPUs: those of this driver, maybe more than there are.
  Resources in_use = {};
};

// What a gang needs: one bundle per worker, and what the trainer itself takes beside them.
struct GangRequest {
  std::string run_name;
  std::vector<Resources> bundles;
  Resources trainer;
  Strategy strategy = Strategy::kPack;
  std::optional<std::string> accelerator_type;
  base::Seconds timeout{60.0};
  // Beyond what its run needs at least: may be asked back (Reclaim), and is refused at once where there is no room now.
  bool optional = false;
};

// Where one bundle of a gang lies. Bundles of one node are neighbours in the list, so that ranks of a node are too; for
// that their order may differ from the request's, and `resources` says which one this is.
struct Slot {
  std::string node_id;
  std::string host;
  Resources resources;
  std::vector<int> gpus;  // indexes of the devices that this bundle may use, shared ones included

  bool operator==(const Slot&) const = default;
};

using GangId = std::uint64_t;

// A Python worker can be forked from a process that has already imported its frameworks.
struct PythonStart {
  std::vector<std::string> preload;
  std::vector<std::string> sys_path;
  std::vector<std::string> argv;
};

struct ProcessSpec {
  std::string label;                       // "rank 3", for messages
  std::vector<std::string> argv;           // what to execute where nothing can be forked
  std::map<std::string, std::string> env;  // the whole environment of the process
  std::string cwd;
  std::string log_path;  // takes stdout and stderr, appended
  std::string
      ticket;  // JSON; reaches the process on the descriptor named by $TRIREME_TICKET_FD, never on a command line
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
// There is room in principle, but others have it now; said once, then Reserved or ReserveFailed follows.
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
};
struct Exited {
  GangId gang;
  int bundle;
  int pid;
  ExitStatus status;
  std::string out_of_memory = {};  // what shows that the kernel ended it for want of memory; empty: nothing does
};
// The gang's room is wanted back. Its owner releases it in its own time, or at latest when `seconds` have passed.
struct Reclaim {
  GangId gang;
  std::string why;
  std::optional<base::Seconds> seconds = {};  // empty: no hurry
};
// There may be room now that was not there before.
struct RoomGrew {
  GangId gang;
};

using EngineEvent =
    std::variant<Reserved, ReserveFailed, ReserveWaiting, Started, StartFailed, Exited, Reclaim, RoomGrew>;
using EventHandler = std::function<void(EngineEvent)>;

class Engine {
 public:
  virtual ~Engine() = default;

  // Refuses at once, with the arithmetic and the ways out, what this engine could never satisfy.
  virtual Result<void> check(const GangRequest& request) const = 0;

  // All or nothing. `handler` gets this gang's events until release().
  virtual GangId reserve(GangRequest request, EventHandler handler) = 0;
  // Ends what still runs in the gang (at once) and gives its room back. Returns when its processes are gone; never
  // called from a handler.
  virtual void release(GangId gang) = 0;

  // Answers with Started or StartFailed, later with Exited. A bundle holds one process at a time.
  virtual void start(GangId gang, int bundle, ProcessSpec spec) = 0;
  // SIGTERM to the process group, SIGKILL after the grace. Grace 0 is SIGKILL at once. A bundle that has no process is
  // fine.
  virtual void kill(GangId gang, int bundle, base::Seconds grace) = 0;

  virtual std::vector<NodeInfo> nodes() const = 0;
};

}  // namespace trireme::engine
