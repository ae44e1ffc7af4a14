#pragma once

#include <functional>
#include <optional>
#include <string>

#include "trireme/export.h"
#include "trireme/value.h"

// For libraries that load data: how a place in the data travels with checkpoints.

namespace trireme::detail {

// Something with a place in its data, which is stored with every checkpoint that this worker reports while it lives.
// It is named by its kind and by how many of that kind came before it in the function: "loader/0", "loader/1", ...;
// or it has a name already: "data/train". Outside of a training function it does nothing.
class TRIREME_API PositionSource {
 public:
  // `now` tells the place, with plain values; called by report(), on its thread.
  PositionSource(const std::string& kind, std::function<Dict()> now);
  // Under a name of its own, which is the same whenever it is made: whoever took data before does not matter.
  struct Named {
    std::string name;
  };
  PositionSource(Named named, std::function<Dict()> now);
  ~PositionSource();
  PositionSource(const PositionSource&) = delete;
  PositionSource& operator=(const PositionSource&) = delete;

  // What the checkpoint that this worker began with has under that name. Where names count, nothing once data was taken
  // by anybody: what is made after that is something else, whatever its number.
  const std::optional<Dict>& stored() const { return stored_; }
  // Data is taken from here.
  void begin() const;

 private:
  void add(bool look, std::function<Dict()> now);

  std::string name_;
  std::optional<Dict> stored_;
};

}  // namespace trireme::detail
