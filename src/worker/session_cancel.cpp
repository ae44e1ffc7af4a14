#include <asio/post.hpp>
#include <cstdio>

#include "worker/session.h"

// Leaving an attempt: the controller's cancel, the thread that aborts collectives, and the interrupts of the function.

namespace trireme::worker {
namespace {

// A function may miss an interrupt, in a destructor or in the middle of an except clause, so it is repeated.
constexpr auto kInterruptPeriod = std::chrono::milliseconds(100);

}  // namespace

// Under the mutex, on the I/O thread.
void Session::cancel() {
  if (ready_) {  // it has not received a function yet: nothing to leave
    pending_start_.reset();
    return tell(wire::Ready{});
  }
  if (cancelled_) return;
  cancelled_ = true;
  for (auto& [id, request] : requests_) request.answer.set_value(base::error("{}", kCancelled));
  requests_.clear();
  abort_collectives();
  asio::post(io_, [this] { interrupt(); });
}

// Under the mutex. On a separate thread: NCCL's abort may take seconds, or never return, and heartbeats must continue.
void Session::abort_collectives() {
  // Not posted, on the I/O thread: the user's thread could post Ready before it.
  if (!on_cancel_) return channel_->send(wire::Aborted{});
  aborting_ = true;
  cancel_thread_ = std::jthread([this, on_cancel = on_cancel_] {
    try {
      on_cancel();
    } catch (const std::exception& thrown) {
      std::fprintf(stderr, "trireme: the collectives could not be aborted: %s\n", thrown.what());
    } catch (...) {
      std::fprintf(stderr,
                   "trireme: the collectives could not be aborted: an exception that is not a std::exception\n");
    }
    tell(wire::Aborted{});
    std::lock_guard lock(mutex_);
    aborting_ = false;
    changed_.notify_all();
  });
}

void Session::interrupt() {
  {
    std::lock_guard lock(mutex_);
    if (!cancelled_ || ready_) return;
    if (interrupt_) interrupt_();
  }
  interrupt_timer_.expires_after(kInterruptPeriod);
  interrupt_timer_.async_wait([this](const asio::error_code& cancelled) {
    if (!cancelled) interrupt();
  });
}

void Session::set_interrupt(std::function<void()> interrupt) {
  std::lock_guard lock(mutex_);
  interrupt_ = std::move(interrupt);
}

void Session::set_on_cancel(std::function<void()> on_cancel) {
  std::lock_guard lock(mutex_);
  // The previous one is destroyed after the lock is released: it may need the GIL, whose owner may wait for the lock.
  std::swap(on_cancel_, on_cancel);
  if (cancelled_ && on_cancel_ && !cancel_thread_.joinable()) abort_collectives();
}

bool Session::wait_for_cancel() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return (cancelled_ && !aborting_) || goodbye_ || !lost_why_.empty(); });
  return cancelled_;
}

void Session::become_ready() {
  std::shared_ptr<CheckpointWriter> writer;
  {
    std::lock_guard lock(mutex_);
    writer = std::move(writer_);
  }
  if (writer) writer->wait_idle();  // parts in flight belong to the attempt that is over
  writer.reset();
  if (cancel_thread_.joinable()) cancel_thread_.join();
  set_on_cancel({});
  std::lock_guard lock(mutex_);
  cancelled_ = false;
  ready_ = true;
  leave_at_ = -1;
  next_collective_ = 0;
  preemption_.reset();
  tell(wire::Ready{});
}

}  // namespace trireme::worker
