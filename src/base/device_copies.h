#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <typeindex>
#include <vector>

#include "trireme/tensor.h"

namespace trireme::base {

// Copies from devices to host memory, all of one kind of device at once, so that the caller waits once.
class DeviceCopies {
 public:
  void add(std::shared_ptr<const DeviceBytes> from, void* to);

  // Returns when the copies are complete: why that failed, or an empty text. `prepare` is called before those of each
  // kind, with one of them.
  std::string run(const std::function<void(const DeviceBytes&)>& prepare = {}) const;

 private:
  std::map<std::type_index, std::vector<DeviceBytes::Copy>> copies_;
  std::vector<std::shared_ptr<const DeviceBytes>> held_;
};

}  // namespace trireme::base
