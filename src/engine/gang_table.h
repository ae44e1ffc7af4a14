#pragma once

#include <future>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/machine.h"
#include "engine/supervisor.h"

// The gangs of the local engine, as seen by its thread: which ones wait for room, which ones have it, and their
// processes.

namespace trireme::engine {

namespace command {
struct Reserve {
  GangId gang;
  GangRequest request;
  EventHandler handler;
};
struct Release {
  GangId gang;
  std::promise<void> done;
};
struct Start {
  GangId gang;
  int bundle;
  ProcessSpec spec;
};
struct Kill {
  GangId gang;
  int bundle;
  base::Seconds grace;
};
// `answer` is written before `done` is set. If the promise is dropped, `answer` is unchanged.
struct SetCapacity {
  Capacity asked;
  Result<Resources>* answer;  // resources of all gangs
  std::promise<void> done;
};
struct RoomGrew {};
struct WarmUp {
  std::map<std::string, std::string> env;
  std::vector<std::string> preload;
};
}  // namespace command

using Command = std::variant<command::Reserve, command::Release, command::Start, command::Kill, command::SetCapacity,
                             command::RoomGrew, command::WarmUp>;

class GangTable {
 public:
  GangTable(Machine& machine, std::vector<std::string> zygote_argv, const base::Clock& clock);

  void handle(Command command);
  // Waits until there is an event or `wake_fd` is readable, and handles it.
  void turn(int wake_fd);
  // Kills everything without events; returns after all processes have exited.
  void shut_down();

 private:
  struct Gang {
    GangRequest request;
    EventHandler handler;
    bool waiting = true;
    bool said_waiting = false;
    base::MonotonicTime deadline;
    base::MonotonicTime next_try;
    std::optional<Reservation> reservation;
    std::optional<Holding> use;                 // once reserved
    std::size_t size = 0;                       // slots, once reserved
    std::optional<std::promise<void>> leaving;  // set while a release waits for processes to exit
  };

  void run(command::Reserve command);
  void run(command::Release command);
  void run(command::Start command);
  void run(command::Kill command);
  void run(command::SetCapacity command);
  void run(command::RoomGrew command);
  void run(command::WarmUp command);

  void try_reserve(GangId id, Gang& gang);
  void on_busy(GangId id, Gang& gang, const std::string& why);
  void refuse(GangId id, Gang& gang, base::Error error);
  const GangRequest* waits_before(const GangRequest& request) const;
  void retry_waiting();
  void tell_room_grew(const std::set<GangId>& except = {});
  Result<Resources> set_capacity(const Capacity& asked);
  void drop_released();
  void tell(GangId gang, EngineEvent event);
  std::optional<base::MonotonicTime> next_try() const;

  Machine& machine_;
  const base::Clock& clock_;
  std::map<GangId, Gang> gangs_;
  Supervisor supervisor_;
};

}  // namespace trireme::engine
