#include "worker/thread_stacks.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/process_state.h"
#include "base/text.h"

namespace trireme::worker {
namespace {

constexpr std::size_t kMaxThreads = 512;
constexpr std::size_t kMaxFrames = 128;
// Room that the handler needs on a signal stack of the program.
constexpr std::size_t kMinRoom = 4096;
constexpr std::size_t kSignalStack = 64 * 1024;

// A slot's state is the number of a collection and one of these phases. The side that advances the state owns the rest
// of the slot: the handler from kAsked to kDone, otherwise the collector. A late answer finds another state and does
// nothing.
enum Phase : std::uint64_t { kFree, kAsked, kWriting, kDone };

constexpr std::uint64_t state_of(std::uint32_t round, Phase phase) {
  return (static_cast<std::uint64_t>(round) << 2) | phase;
}

struct Slot {
  std::atomic<std::uint64_t> state = 0;
  std::uintptr_t pthread = 0;
  std::size_t count = 0;
  bool in_handler = false;  // the unwinder is between the handler and the interrupted code
  std::array<Address, kMaxFrames> frames{};
};

// A signal handler can only access globals. They are never freed, so a late signal is safe.
constinit std::array<Slot, kMaxThreads> slots;
constinit std::atomic<bool> collecting = false;
constinit std::atomic<std::uint32_t> released = 0;   // the collection whose threads may continue; a futex
constinit std::atomic<std::int64_t> hold_until = 0;  // they continue then at the latest
std::uint32_t last_round = 0;                        // owned by the holder of `collecting`
constinit std::atomic<std::uintptr_t> main_pthread = 0;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof released == sizeof(std::uint32_t));

std::int64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

void on_signal(int, siginfo_t* info, void*);

_Unwind_Reason_Code keep_frame(_Unwind_Context* context, void* data) {
  auto& slot = *static_cast<Slot*>(data);
  int exact = 0;  // set for the frame that a signal interrupted; the others are return addresses
  const Address address = _Unwind_GetIPInfo(context, &exact);
  if (address == 0) return _URC_END_OF_STACK;
  if (_Unwind_GetRegionStart(context) == reinterpret_cast<Address>(&on_signal)) slot.in_handler = true;
  if (exact && slot.in_handler) {
    slot.in_handler = false;
    slot.count = 0;
  }
  slot.frames[slot.count++] = exact ? address : address - 1;
  return slot.count < kMaxFrames ? _URC_NO_REASON : _URC_END_OF_STACK;
}

std::uintptr_t own_pthread() { return static_cast<std::uintptr_t>(::pthread_self()); }

int own_tid() { return static_cast<int>(::syscall(SYS_gettid)); }

void write_stack(Slot& slot) {
  slot.pthread = own_pthread();
  slot.count = 0;
  slot.in_handler = false;
  _Unwind_Backtrace(&keep_frame, &slot);
}

// False on a signal stack that is nearly full.
bool has_room() {
  stack_t stack{};
  if (::sigaltstack(nullptr, &stack) != 0 || !(stack.ss_flags & SS_ONSTACK)) return true;
  const auto here = reinterpret_cast<std::uintptr_t>(&stack);
  const auto bottom = reinterpret_cast<std::uintptr_t>(stack.ss_sp);
  return here > bottom && here - bottom >= kMinRoom;
}

void stand_still(std::uint32_t round) {
  while (true) {
    const std::uint32_t now_released = released.load(std::memory_order_acquire);
    const std::int64_t left = hold_until.load(std::memory_order_relaxed) - monotonic_ns();
    if (now_released >= round || left <= 0) return;
    const timespec wait{.tv_sec = left / 1'000'000'000, .tv_nsec = left % 1'000'000'000};
    ::syscall(SYS_futex, &released, FUTEX_WAIT_PRIVATE, now_released, &wait, nullptr, 0);
  }
}

// Only async-signal-safe code: the unwinder was called once before, and takes no lock that the loader holds for long.
void on_signal(int, siginfo_t* info, void*) {
  const int saved_errno = errno;
  const auto value = reinterpret_cast<std::uintptr_t>(info->si_value.sival_ptr);
  const auto round = static_cast<std::uint32_t>(value >> 16);
  const std::size_t index = value & 0xffff;
  if (info->si_code == SI_QUEUE && info->si_pid == ::getpid() && index < slots.size()) {
    Slot& slot = slots[index];
    std::uint64_t expected = state_of(round, kAsked);
    if (slot.state.compare_exchange_strong(expected, state_of(round, kWriting), std::memory_order_acq_rel)) {
      slot.count = 0;
      if (has_room()) write_stack(slot);
      slot.state.store(state_of(round, kDone), std::memory_order_release);
      stand_still(round);
    }
  }
  errno = saved_errno;
}

bool handler_is_ours() {
  struct sigaction now {};
  return ::sigaction(stack_signal(), nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) &&
         now.sa_sigaction == &on_signal;
}

bool ask(int tid, std::uint32_t round, std::size_t index) {
  siginfo_t info{};
  info.si_signo = stack_signal();
  info.si_code = SI_QUEUE;
  info.si_pid = ::getpid();
  info.si_uid = ::getuid();
  info.si_value.sival_ptr = reinterpret_cast<void*>((static_cast<std::uintptr_t>(round) << 16) | index);
  return ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), tid, stack_signal(), &info) == 0;
}

std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool blocks_signal(int tid) {
  constexpr std::string_view kBlocked = "SigBlk:";
  std::ifstream status(fmt::format("/proc/self/task/{}/status", tid));
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(kBlocked)) continue;
    return (std::strtoull(line.c_str() + kBlocked.size(), nullptr, 16) >> (stack_signal() - 1)) & 1;
  }
  return false;
}

struct Asked {
  ThreadStack stack;
  std::optional<std::size_t> slot;
};

// All threads, the main thread first, each with a slot if it can answer. Signals to a thread that blocks them would
// pile up.
std::vector<Asked> list_threads() {
  std::vector<Asked> threads;
  const int self = own_tid();
  std::size_t next_slot = 0;
  std::error_code failed;
  // Not a range-for, which throws if reading the folder fails midway.
  std::filesystem::directory_iterator entry("/proc/self/task", failed);
  for (; !failed && entry != std::filesystem::directory_iterator(); entry.increment(failed)) {
    Asked thread;
    thread.stack.tid = std::atoi(entry->path().filename().c_str());
    if (thread.stack.tid == ::getpid()) thread.stack.pthread = main_pthread;
    thread.stack.name = line_of(entry->path() / "comm");
    // Skip a slot that a thread is still writing to.
    while (next_slot < slots.size() && (slots[next_slot].state.load(std::memory_order_acquire) & 3) == kWriting) {
      ++next_slot;
    }
    if (thread.stack.tid == self) {
      thread.stack.silence = "collects these stacks";
    } else if (blocks_signal(thread.stack.tid)) {
      thread.stack.silence = "blocks the signal";
    } else if (next_slot == slots.size()) {
      thread.stack.silence = fmt::format("not asked: more than {} threads", kMaxThreads);
    } else {
      thread.slot = next_slot++;
    }
    threads.push_back(std::move(thread));
  }
  return threads;
}

// Between the first signal and the release it takes no lock and allocates no memory, because threads are stopped.
void question(const std::vector<Asked>& threads, base::Seconds timeout, const std::function<void()>& meanwhile) {
  const std::uint32_t round = ++last_round;
  const std::int64_t deadline = monotonic_ns() + static_cast<std::int64_t>(timeout.count() * 1e9);
  // Longer than the deadline, so that no thread moves while `meanwhile` runs, but bounded, in case this thread dies.
  hold_until.store(deadline + static_cast<std::int64_t>(timeout.count() * 1e9), std::memory_order_relaxed);
  for (const Asked& thread : threads) {
    if (!thread.slot) continue;
    slots[*thread.slot].state.store(state_of(round, kAsked), std::memory_order_release);
    if (!ask(thread.stack.tid, round, *thread.slot)) {
      slots[*thread.slot].state.store(state_of(round, kFree), std::memory_order_release);
    }
  }
  const auto is_open = [&](const Asked& thread) {
    if (!thread.slot) return false;
    const std::uint64_t state = slots[*thread.slot].state.load(std::memory_order_acquire);
    if (state == state_of(round, kDone) || state == state_of(round, kFree)) return false;
    return ::syscall(SYS_tgkill, ::getpid(), thread.stack.tid, 0) == 0;  // it may have ended instead of answering
  };
  while (std::any_of(threads.begin(), threads.end(), is_open) && monotonic_ns() < deadline) {
    const timespec pause{.tv_sec = 0, .tv_nsec = 200'000};
    ::nanosleep(&pause, nullptr);
  }
  meanwhile();
  released.store(round, std::memory_order_release);
  ::syscall(SYS_futex, &released, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

void take_answer(Asked& thread) {
  if (!thread.slot) return;
  Slot& slot = slots[*thread.slot];
  std::uint64_t state = state_of(last_round, kAsked);
  if (slot.state.compare_exchange_strong(state, state_of(last_round, kFree), std::memory_order_acq_rel)) {
    thread.stack.silence = "does not answer";
  } else if (state == state_of(last_round, kDone)) {
    thread.stack.pthread = slot.pthread;
    thread.stack.frames.assign(slot.frames.begin(), slot.frames.begin() + static_cast<std::ptrdiff_t>(slot.count));
    if (slot.count == 0) thread.stack.silence = "has no room left on its signal stack";
  } else {
    thread.stack.silence = state == state_of(last_round, kFree) ? "could not be asked" : "is slow to answer";
  }
}

void add_own(ThreadStack& stack) {
  Slot own;
  write_stack(own);
  stack.pthread = own.pthread;
  stack.frames.assign(own.frames.begin(), own.frames.begin() + static_cast<std::ptrdiff_t>(own.count));
}

}  // namespace

int stack_signal() { return SIGRTMIN + 6; }

namespace {

// faulthandler gives the main thread a signal stack with little more room than one signal frame, and our handler runs
// on it too.
void widen_signal_stack() {
  alignas(16) static std::array<std::byte, kSignalStack> room;
  stack_t stack{};
  if (::sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & (SS_DISABLE | SS_ONSTACK))) return;
  if (stack.ss_size >= room.size()) return;
  const stack_t wider{.ss_sp = room.data(), .ss_flags = 0, .ss_size = room.size()};
  ::sigaltstack(&wider, nullptr);
}

}  // namespace

void install_stack_handler() {
  Slot unused;
  if (own_tid() == ::getpid()) {
    main_pthread = own_pthread();
    widen_signal_stack();
  }
  write_stack(unused);  // the unwinder loads and resolves symbols at first use, which a signal handler must not do
  struct sigaction before {};
  if (::sigaction(stack_signal(), nullptr, &before) != 0) return;
  if ((before.sa_flags & SA_SIGINFO) || (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)) return;
  struct sigaction action {};
  action.sa_sigaction = &on_signal;
  // SA_NODEFER: a thread that is still in the handler when the next collection starts does not block the signal.
  // SA_ONSTACK: threads of some languages have small stacks and provide a separate signal stack.
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(stack_signal(), &action, nullptr);
}

std::vector<ThreadStack> collect_threads(base::Seconds timeout, const std::function<void()>& meanwhile,
                                         std::string& problem) {
  // Without the handler the signal would end the process.
  if (!handler_is_ours()) {
    problem = fmt::format(
        "no stacks: Trireme's handler for signal {}, which collects them, is not installed; leave SIGRTMIN+6 to "
        "Trireme",
        stack_signal());
    return {};
  }
  if (collecting.exchange(true, std::memory_order_acquire)) {
    problem = "no stacks: another collection is in progress";
    return {};
  }
  const std::unique_ptr<std::atomic<bool>, void (*)(std::atomic<bool>*)> guard(
      &collecting, [](std::atomic<bool>* flag) { flag->store(false, std::memory_order_release); });
  std::vector<Asked> threads = list_threads();
  question(threads, timeout, meanwhile);
  std::vector<ThreadStack> stacks;
  const int self = own_tid();
  for (Asked& thread : threads) {
    take_answer(thread);
    if (thread.stack.tid == self) add_own(thread.stack);
    // A thread that has ended in the meantime has no stack.
    const std::string now = thread.stack.silence.empty() ? "" : base::describe_thread(thread.stack.tid);
    if (now == "gone") continue;
    if (!now.empty() && thread.stack.tid != self) thread.stack.silence += "; " + now;
    stacks.push_back(std::move(thread.stack));
  }
  return stacks;
}

}  // namespace trireme::worker
