#include "trireme/cancel.h"

#include <exception>

#include "api/cancel_hooks.h"
#include "api/train_session.h"

namespace trireme {
namespace api {
namespace {

void call_all(const std::vector<CancelHooks::Hook>& hooks) {
  std::exception_ptr first;
  for (const auto& hook : hooks) {
    // One communicator that cannot be aborted must not keep the others from it.
    try {
      hook();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace

bool CancelHooks::add_on_cancel(Hook hook) {
  std::lock_guard lock(mutex_);
  if (cancelled_) return false;
  on_cancel_.push_back(std::move(hook));
  return true;
}

void CancelHooks::cancel() {
  std::vector<Hook> hooks;
  {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    hooks = on_cancel_;
  }
  call_all(hooks);
}

void CancelHooks::interrupt() const { call_all(on_interrupt_); }

}  // namespace api

void on_cancel(std::function<void()> hook) {
  auto& current = api::current("on_cancel");
  if (!current.hooks) return;
  if (!current.hooks->add_on_cancel(std::move(hook))) throw Interrupted{};
}

void on_interrupt(std::function<void()> hook) {
  auto& current = api::current("on_interrupt");
  if (current.hooks) current.hooks->add_on_interrupt(std::move(hook));
}

void set_collective_timeout(double seconds) {
  auto& current = api::current("set_collective_timeout");
  if (current.session != nullptr) current.session->set_collective_timeout(base::Seconds(seconds));
}

}  // namespace trireme
