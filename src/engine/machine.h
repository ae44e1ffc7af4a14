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
#include "engine/gpus.h"
#include "engine/ledger.h"

// This machine as the only node of the local engine: its resources, its declared capacity and its reservations.
// Thread-safe.

namespace trireme::engine {

struct MachineOptions {
  // Declared capacity is a limit. Undeclared CPUs are time-shared, and undeclared GPUs are detected.
  std::optional<double> num_cpus;
  std::optional<int> num_gpus;
  Resources resources;
  std::string host;
  // State shared by the drivers of this user.
  std::filesystem::path state_dir;
};

class Machine {
 public:
  explicit Machine(MachineOptions options);

  // Replaces the declared capacity (num_cpus, num_gpus, resources). Existing reservations stay. Returns true if there
  // may be more room than before.
  bool declare(const MachineOptions& options);

  // A gang of this engine that holds its room.
  struct Occupant {
    const Holding& use;
    std::optional<Reservation>& reservation;
    bool optional = false;
    bool leaving = false;  // is about to release it
  };
  struct Change {
    Lowering lowering;
    bool grew = false;  // some resource may have grown
  };
  // Changes the fields that are set. Resources that become limited are reserved for the gangs that use them. Occupants
  // are ordered by age. On failure nothing changes.
  Result<Change> set_capacity(const Capacity& asked, const std::vector<Occupant>& occupants);

  // With the currently available amounts.
  NodeInfo node() const;
  bool cpus_declared() const;
  Result<void> check(const GangRequest& request) const;

  struct Granted {
    std::vector<Slot> slots;
    Holding use;                             // time-shared CPUs included
    std::optional<Reservation> reservation;  // absent if the gang uses nothing that is limited
  };
  // The room is in use; `why` lists the holders.
  struct Busy {
    std::string why;
  };
  Result<std::variant<Granted, Busy>> reserve(const GangRequest& request) const;

  // The variables that limit a process to these GPUs.
  std::map<std::string, std::string> visible_variables(const std::vector<std::string>& gpus) const;

 private:
  MachineOptions options() const;
  NodeInfo total(const MachineOptions& options, bool with_gpus) const;
  const GpuInventory& inventory() const;

  mutable std::mutex mutex_;
  MachineOptions options_;  // under the mutex
  Ledger ledger_;
  // Querying the NVIDIA driver can take a second, so it is done once, and only if GPUs are needed.
  mutable std::once_flag gpus_once_;
  mutable std::once_flag masked_once_;
  mutable GpuInventory inventory_;
};

}  // namespace trireme::engine
