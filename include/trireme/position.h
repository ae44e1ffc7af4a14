#pragma once

#include <functional>
#include <optional>
#include <string>

#include "trireme/export.h"
#include "trireme/value.h"

// For libraries that load data: how the position in the data is saved with checkpoints.

namespace trireme::detail {

// A position in some data, saved with every checkpoint that this worker reports during the object's lifetime. The name
// is the kind plus a counter per training function ("loader/0", "loader/1", ...), or an explicit name ("data/train").
// Outside of a training function, the object does nothing.
class TRIREME_API PositionSource {
 public:
  // `now` returns the position as plain values. report() calls it on its own thread.
  PositionSource(const std::string& kind, std::function<Dict()> now);
  // With an explicit name, which stays the same no matter which other sources were created or read before.
  struct Named {
    std::string name;
  };
  PositionSource(Named named, std::function<Dict()> now);
  ~PositionSource();
  PositionSource(const PositionSource&) = delete;
  PositionSource& operator=(const PositionSource&) = delete;

  // The position in the checkpoint that this worker started from. For counted names: nullopt once any source was read,
  // because a source created after that is a different one, even with the same number.
  const std::optional<Dict>& stored() const { return stored_; }
  // Data is read from this source from now on.
  void begin() const;

 private:
  void add(bool look, std::function<Dict()> now);

  std::string name_;
  std::optional<Dict> stored_;
};

}  // namespace trireme::detail
