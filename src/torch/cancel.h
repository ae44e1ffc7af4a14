#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class ProcessGroup;
}

namespace trireme::torch::detail {

// Before this process is ready for another attempt: waits for the device and frees its cache. A failed kernel makes
// every later call fail, and the process is then replaced. Does nothing for the CPU.
void clear_on_interrupt(c10::Device device);

}  // namespace trireme::torch::detail
