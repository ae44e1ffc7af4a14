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

// Who has reserved what of one machine. Drivers that run at the same time share its declared capacity through a folder:
// one file per reservation, on which its holder keeps a lock. The kernel drops the lock with the holder, so that a
// crash frees what it held.

namespace trireme::engine {

#define TRIREME_GPU_SHARE(FIELD)              \
  FIELD(int, index, 0, "index of the device") \
  FIELD(double, share, 0.0, "share of the device, at most 1")

TRIREME_STRUCT(GpuShare, TRIREME_GPU_SHARE)

#define TRIREME_HOLDING(FIELD)                                      \
  FIELD(int, pid, 0, "pid of the driver")                           \
  FIELD(std::string, run_name, "", "name of the run")               \
  FIELD(Resources, resources, {}, "amounts by name, GPUs included") \
  FIELD(std::vector<GpuShare>, gpus, {}, "the devices")

TRIREME_STRUCT(Holding, TRIREME_HOLDING)

// Holds a share of the machine until it is destroyed.
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
  // Touches nothing yet: the folder is made by the first reservation.
  explicit Ledger(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Given what everybody holds now, says what to take, or nothing. No other reservation is made meanwhile.
  using Decide = std::function<std::optional<Holding>(const std::vector<Holding>&)>;
  base::Result<std::optional<Reservation>> reserve(const Decide& decide) const;

  // Given what everybody but `own` holds now, says what each of `own` is to hold from now on (nothing where that is
  // empty), or why all stays as it is. No other reservation is made meanwhile.
  using Revise = std::function<base::Result<std::vector<Holding>>(const std::vector<Holding>& others)>;
  base::Result<void> revise(const std::vector<std::optional<Reservation>*>& own, const Revise& decide) const;

  // What everybody holds now, this process included.
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
