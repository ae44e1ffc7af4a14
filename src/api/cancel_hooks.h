#pragma once

#include <functional>
#include <mutex>
#include <vector>

namespace trireme::api {

// The hooks of one attempt; see trireme/cancel.h.
class CancelHooks {
 public:
  using Hook = std::function<void()>;

  // False: the attempt is already cancelled.
  bool add_on_cancel(Hook hook);
  void add_on_interrupt(Hook hook) { on_interrupt_.push_back(std::move(hook)); }

  // Calls all hooks, and then throws the first exception of them.
  void cancel();
  void interrupt() const;

 private:
  std::mutex mutex_;
  std::vector<Hook> on_cancel_;
  bool cancelled_ = false;
  std::vector<Hook> on_interrupt_;  // used only by the function's thread
};

}  // namespace trireme::api
