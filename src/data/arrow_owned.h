#pragma once

#include <utility>

#include "data/arrow_c.h"

namespace trireme::data {

// A schema, array or stream that is released on destruction, unless it was moved out.
template <typename C>
class Owned {
 public:
  Owned() = default;
  // Moves the struct out: the given one counts as released.
  explicit Owned(C& c) : c_(std::exchange(c, C{})) {}
  explicit Owned(C&& c) : c_(std::exchange(c, C{})) {}
  ~Owned() {
    if (c_.release) c_.release(&c_);
  }
  Owned(Owned&& other) noexcept : c_(other.give()) {}
  Owned& operator=(Owned&& other) noexcept {
    if (c_.release) c_.release(&c_);
    c_ = other.give();
    return *this;
  }

  C& operator*() { return c_; }
  const C& operator*() const { return c_; }
  C* operator->() { return &c_; }
  const C* operator->() const { return &c_; }
  C give() { return std::exchange(c_, C{}); }

 private:
  C c_{};
};

using OwnedArray = Owned<ArrowArray>;
using OwnedSchema = Owned<ArrowSchema>;
using OwnedStream = Owned<ArrowArrayStream>;

// A record batch: a struct array, and its schema.
struct Record {
  OwnedArray array;
  OwnedSchema schema;
};

}  // namespace trireme::data
