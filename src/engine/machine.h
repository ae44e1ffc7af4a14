#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/capacity.h"
#include "engine/engine.h"
#include "engine/ledger.h"

// This machine as the one node of the local engine: what it has, what is declared, and who holds what of it. Calls may
// come from any thread.

namespace trireme::engine {

struct MachineOptions {
  // Declared capacity is a limit; CPUs that are not declared are time-shared, GPUs are looked for.
  std::optional<double> num_cpus;
  std::optional<int> num_gpus;
  Resources resources;
  std::string host;
  // Where drivers of this user keep what they share.
  std::filesystem::path state_dir;
};

class Machine {
 public:
  explicit Machine(MachineOptions options);

  // From now on: what is declared (num_cpus, num_gpus, resources) is replaced. What is reserved stays so. True when
  // there may be more room than before.
  bool declare(const MachineOptions& options);

  // A gang of this engine that has its room.
  struct Occupant {
    const Holding& use;
    std::optional<Reservation>& reservation;
    bool optional = false;
    bool leaving = false;  // is about to give it back
  };
  struct Change {
    Lowering lowering;
    bool grew = false;  // there may be more of something
  };
  // Changes what is given; what is limited from now on is reserved for those who have it. Occupants in the order of
  // age. When refused, nothing is changed.
  Result<Change> set_capacity(const Capacity& asked, const std::vector<Occupant>& occupants);

  // With what is available now.
  NodeInfo node() const;
  bool cpus_declared() const;
  Result<void> check(const GangRequest& request) const;

  struct Granted {
    std::vector<Slot> slots;
    Holding use;                             // time-shared CPUs included
    std::optional<Reservation> reservation;  // absent where the gang takes nothing that is limited
  };
  // Others have it now; says who.
  struct Busy {
    std::string why;
  };
  Result<std::variant<Granted, Busy>> reserve(const GangRequest& request) const;

 private:
  MachineOptions options() const;
  NodeInfo total(const MachineOptions& options, bool with_gpus) const;

  mutable std::mutex mutex_;
  MachineOptions options_;  // under the mutex
  Ledger ledger_;
  // Asking the NVIDIA driver can take a second, so it is asked once, and only where GPUs matter.
  mutable std::once_flag gpus_once_;
  mutable std::vector<Gpu> found_gpus_;
};

}  // namespace trireme::engine
