#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

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

  // From now on: what is declared (num_cpus, num_gpus, resources) is replaced. What is reserved stays so.
  void declare(const MachineOptions& options);

  // With what is available now.
  NodeInfo node() const;
  Result<void> check(const GangRequest& request) const;

  struct Granted {
    std::vector<Slot> slots;
    std::optional<Reservation> reservation;  // absent where the gang takes nothing that is limited
  };
  // Others have it now; says who.
  struct Busy {
    std::string why;
  };
  Result<std::variant<Granted, Busy>> reserve(const GangRequest& request) const;

 private:
  NodeInfo total(bool with_gpus) const;

  mutable std::mutex mutex_;
  MachineOptions options_;  // under the mutex
  Ledger ledger_;
  // Asking the NVIDIA driver can take a second, so it is asked once, and only where GPUs matter.
  mutable std::once_flag gpus_once_;
  mutable std::vector<Gpu> found_gpus_;
};

}  // namespace trireme::engine
