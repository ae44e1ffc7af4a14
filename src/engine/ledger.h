#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/lock_file.h"
#include "base/result.h"
#include "trireme/config.h"

// The reservations on one machine. Concurrent drivers share its declared capacity through a folder with one file per
// reservation, which its holder keeps locked. The kernel releases the lock when the holder exits, so a crash frees its
// reservations.

namespace trireme::engine {

#define TRIREME_GPU_SHARE(FIELD)                                             \
  FIELD(std::string, device, "", "UUID of the device, or its id if unknown") \
  FIELD(double, share, 0.0, "share of the device, at most 1")

TRIREME_STRUCT(GpuShare, TRIREME_GPU_SHARE)

#define TRIREME_HOLDING(FIELD)                                      \
  FIELD(int, pid, 0, "pid of the driver")                           \
  FIELD(std::string, run_name, "", "name of the run")               \
  FIELD(Resources, resources, {}, "amounts by name, GPUs included") \
  FIELD(std::vector<GpuShare>, gpus, {}, "the devices")

TRIREME_STRUCT(Holding, TRIREME_HOLDING)

// Holds a share of the machine until destroyed.
class Reservation {
 public:
  Reservation(base::LockFile locked, std::filesystem::path path);
  Reservation(Reservation&&) = default;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation() { give_back(); }

  const std::filesystem::path& path() const { return path_; }

 private:
  void give_back();

  base::LockFile locked_;
  std::filesystem::path path_;
};

class Ledger {
 public:
  // Creates nothing: the first reservation creates the folder.
  explicit Ledger(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Returns what to reserve, given all current holdings, or nothing. No other reservation is made during the call.
  using Decide = std::function<std::optional<Holding>(const std::vector<Holding>&)>;
  base::Result<std::optional<Reservation>> reserve(const Decide& decide) const;

  // Returns the new holding for each of `own` (an empty one removes it), given all other holdings, or an error that
  // leaves everything unchanged. No other reservation is made during the call.
  using Revise = std::function<base::Result<std::vector<Holding>>(const std::vector<Holding>& others)>;
  base::Result<void> revise(const std::vector<std::optional<Reservation>*>& own, const Revise& decide) const;

  // All current holdings, including those of this process.
  base::Result<std::vector<Holding>> holdings() const;

 private:
  base::Result<void> make_folder() const;
  base::Result<base::LockFile> lock() const;
  std::vector<Holding> read_all(const std::set<std::filesystem::path>& except = {}) const;
  base::Result<Reservation> write(const Holding& holding) const;

  std::filesystem::path folder_;
};

}  // namespace trireme::engine

namespace trireme::base {
TRIREME_STRUCT_FIELDS(engine::GpuShare, TRIREME_GPU_SHARE)
TRIREME_STRUCT_FIELDS(engine::Holding, TRIREME_HOLDING)
}  // namespace trireme::base
