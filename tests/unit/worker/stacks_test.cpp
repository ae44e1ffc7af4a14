#include "worker/stacks.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/fd.h"
#include "base/process_state.h"
#include "base/text.h"
#include "unit/sanitizers.h"
#include "worker/symbols.h"
#include "worker/thread_stacks.h"

// Not static, so that the optimizer does not rename them.
namespace stacks_test {

[[gnu::noinline]] void sleeps_here(int pipe, std::atomic<int>& tid) {
  tid = static_cast<int>(::syscall(SYS_gettid));
  pollfd end{.fd = pipe, .events = POLLIN, .revents = 0};
  while (::poll(&end, 1, -1) < 0 && errno == EINTR) {
  }
}

[[gnu::noinline]] void spins_here(std::atomic<bool>& stop, std::atomic<int>& tid) {
  tid = static_cast<int>(::syscall(SYS_gettid));
  while (!stop) {
  }
}

[[gnu::noinline]] void recurses_here(int depth, int pipe, std::atomic<int>& tid) {
  if (depth > 0) {
    recurses_here(depth - 1, pipe, tid);
  } else {
    sleeps_here(pipe, tid);
  }
  asm volatile("");  // no tail call
}

using namespace trireme;
using namespace trireme::worker;

namespace {

constexpr base::Seconds kPatience{20.0};

struct Pipe {
  Pipe() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    read = base::Fd(ends[0]);
    write = base::Fd(ends[1]);
  }
  base::Fd read, write;
};

bool has_pending_signal(int tid) {
  std::ifstream status("/proc/self/task/" + std::to_string(tid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigPnd:")) return line.find_first_of("123456789abcdef", 7) != std::string::npos;
  }
  return false;
}

// ThreadSanitizer runs handlers immediately only in a thread that sleeps. For a running thread it defers one signal of
// each kind: a second one is lost, while the kernel would queue it.
constexpr bool kSignalsMerge = tests::kThreadSanitizer;

// Waits until it has handled its signals and sleeps, observed in this order.
void wait_until_asleep(int tid) {
  while (has_pending_signal(tid) || !base::describe_thread(tid).starts_with("sleeping")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// A thread that has reached its function, and ends when this object is destroyed.
class Busy {
 public:
  enum class Kind { kSleeps, kSpins, kRecurses, kBlocksSignals };

  explicit Busy(Kind kind) {
    thread_ = std::thread([this, kind] {
      if (kind == Kind::kBlocksSignals) set_mask(SIG_BLOCK);
      if (kind == Kind::kSpins) return stacks_test::spins_here(stop_, tid_);
      if (kind == Kind::kRecurses) return stacks_test::recurses_here(300, pipe_.read.get(), tid_);
      stacks_test::sleeps_here(pipe_.read.get(), tid_);
      if (kind == Kind::kBlocksSignals) set_mask(SIG_UNBLOCK);
    });
    while (tid_ == 0) std::this_thread::yield();
    if (kind != Kind::kSpins) wait_until_asleep(tid_);
  }
  ~Busy() {
    stop_ = true;
    pipe_.write.reset();
    thread_.join();
  }

  int tid() const { return tid_; }

 private:
  static void set_mask(int how) {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(how, &all, nullptr);
  }

  Pipe pipe_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> tid_ = 0;
  std::thread thread_;
};

// The part of the text about one thread, starting at its head.
std::string section(const std::string& text, int tid) {
  const std::size_t at = text.find("Thread " + std::to_string(tid) + " ");
  return at == std::string::npos ? "" : text.substr(at, text.find("\n\n", at) - at);
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

auto find_thread(const std::vector<ThreadStack>& threads, int tid) {
  return std::find_if(threads.begin(), threads.end(), [tid](const ThreadStack& thread) { return thread.tid == tid; });
}

ThreadStack stack_of(int tid, base::Seconds timeout) {
  std::string problem;
  const auto threads = collect_threads(
      timeout, [] {}, problem);
  REQUIRE(problem == "");
  const auto thread = find_thread(threads, tid);
  REQUIRE(thread != threads.end());
  return *thread;
}

const Symbol& symbol_of(const void* address, std::map<Address, Symbol>& symbols) {
  symbols = symbolize({reinterpret_cast<Address>(address)});
  return symbols.begin()->second;
}

}  // namespace

TEST_CASE("threads report their stacks, whatever they do") {
  prepare_stacks();
  const Busy sleeping(Busy::Kind::kSleeps), spinning(Busy::Kind::kSpins), blocking(Busy::Kind::kBlocksSignals);
  for (int round = 0; round < 2; ++round) {
    const Stacks stacks = collect_stacks(kPatience);
    CAPTURE(stacks.text);
    CHECK(has(section(stacks.text, sleeping.tid()), "stacks_test::sleeps_here("));
    CHECK(has(section(stacks.text, sleeping.tid()), "(unit_tests)"));
    CHECK(has(section(stacks.text, spinning.tid()), "stacks_test::spins_here("));
    CHECK(has(section(stacks.text, blocking.tid()), "blocks the signal; sleeping"));
    CHECK_FALSE(has(section(stacks.text, blocking.tid()), "sleeps_here"));
    CHECK(has(section(stacks.text, ::getpid()), "main thread: collects these stacks"));
    CHECK_FALSE(has(section(stacks.text, sleeping.tid()), "on_signal"));
  }
}

TEST_CASE("the location is the innermost function of the program on the main thread") {
  prepare_stacks();
  Stacks stacks;
  std::atomic<int> tid = 0;
  Pipe pipe;
  std::thread collector([&] {
    while (tid == 0) std::this_thread::yield();
    // It may not have reached poll() yet.
    while (!has(stacks.where, "poll)")) {
      stacks = collect_stacks(kPatience);
      if (!has(stacks.where, "sleeps_here")) break;
    }
    pipe.write.reset();
  });
  stacks_test::sleeps_here(pipe.read.get(), tid);
  collector.join();
  CAPTURE(stacks.where);
  // Clang links the functions that sanitizers replace into the program.
  const bool replaced = tests::kSanitized && stacks.where.starts_with("poll in ");
  CHECK((stacks.where.starts_with("stacks_test::sleeps_here in ") || replaced));
  CHECK(has(section(stacks.text, tid), "main thread\n"));
}

TEST_CASE("a deep stack is truncated") {
  prepare_stacks();
  const Busy deep(Busy::Kind::kRecurses);
  const std::string text = section(collect_stacks(kPatience).text, deep.tid());
  CHECK(has(text, "stacks_test::sleeps_here("));
  const auto lines = base::split(text, '\n').size();
  CHECK(lines > 100);
  CHECK(lines < 140);
}

TEST_CASE("threads that start and end do not disturb or delay a collection") {
  prepare_stacks();
  std::atomic<bool> stop = false;
  std::thread spawner([&] {
    while (!stop) std::thread([] {}).join();
  });
  for (int round = 0; round < 50; ++round) {
    std::string problem;
    const auto threads = collect_threads(
        kPatience, [] {}, problem);
    CHECK(problem == "");
    CHECK(find_thread(threads, ::getpid()) != threads.end());
  }
  stop = true;
  spawner.join();
}

TEST_CASE("two concurrent collections: one gets the stacks, the other an error") {
  prepare_stacks();
  std::atomic<int> complete = 0, refused = 0;
  std::vector<std::thread> collectors;
  for (int i = 0; i < 4; ++i) {
    collectors.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        std::string problem;
        const auto threads = collect_threads(
            kPatience, [] {}, problem);
        ++(problem == "no stacks: another collection is in progress" ? refused : complete);
        for (const ThreadStack& thread : threads) CHECK_FALSE(has(thread.silence, "does not answer"));
      }
    });
  }
  for (auto& collector : collectors) collector.join();
  CHECK(complete > 0);
  CHECK(complete + refused == 80);
}

TEST_CASE("an answer after the end of a collection has no effect") {
  prepare_stacks();
  Busy sleeping(Busy::Kind::kSleeps);
  for (int round = 0; round < 20; ++round) {
    // No timeout at all: a thread that does not answer immediately is late.
    stack_of(sleeping.tid(), base::Seconds(0));
    if (kSignalsMerge) wait_until_asleep(sleeping.tid());
    const ThreadStack stack = stack_of(sleeping.tid(), kPatience);
    CHECK(stack.silence == "");
    CHECK(stack.frames.size() > 1);
  }
  if (kSignalsMerge) wait_until_asleep(sleeping.tid());
  CHECK(has(section(collect_stacks(kPatience).text, sleeping.tid()), "stacks_test::sleeps_here("));
}

TEST_CASE("a signal from another sender is ignored") {
  prepare_stacks();
  const Busy sleeping(Busy::Kind::kSleeps);
  ::syscall(SYS_tgkill, ::getpid(), sleeping.tid(), stack_signal());
  sigval value{};
  value.sival_ptr = reinterpret_cast<void*>(~std::uintptr_t{0});
  ::sigqueue(::getpid(), stack_signal(), value);
  if (kSignalsMerge) wait_until_asleep(sleeping.tid());
  CHECK(has(section(collect_stacks(kPatience).text, sleeping.tid()), "stacks_test::sleeps_here("));
}

TEST_CASE("no signal is sent if the program has its own handler") {
  prepare_stacks();
  struct sigaction ours {};
  struct sigaction other {};
  other.sa_handler = SIG_DFL;
  ::sigaction(stack_signal(), &other, &ours);
  const Stacks stacks = collect_stacks(kPatience);
  ::sigaction(stack_signal(), &ours, nullptr);
  CHECK(stacks.text.starts_with("no stacks: Trireme's handler for signal"));
  CHECK(stacks.where.empty());
}

namespace {

int dump_fd = -1;

void write_dump(int) {
  const char text[] = "Thread 0x0000000000000abc (most recent call first):\n  File \"/x/a.py\", line 7 in f\n";
  [[maybe_unused]] auto written = ::write(dump_fd, text, sizeof text - 1);
}

}  // namespace

TEST_CASE("Python's output is part of the text, once per collection") {
  prepare_stacks();
  const base::Fd file(::memfd_create("dump", MFD_CLOEXEC));
  dump_fd = file.get();
  const int signal = SIGRTMIN + 7;
  std::signal(signal, &write_dump);
  set_python_dump(signal, file.get(), {});
  for (int round = 0; round < 2; ++round) {
    const std::string text = collect_stacks(kPatience).text;
    const std::size_t at = text.find("Python thread 0xabc");
    REQUIRE(at != std::string::npos);
    CHECK(has(text.substr(at), "    File \"/x/a.py\", line 7 in f\n"));
    CHECK(text.find("line 7 in f") == text.rfind("line 7 in f"));
  }
  // If it were still raised, the signal would end this process.
  std::signal(signal, SIG_DFL);
  CHECK(has(collect_stacks(kPatience).text, "main thread"));
  set_python_dump(0, -1, {});
}

TEST_CASE("addresses have names") {
  std::map<Address, Symbol> symbols;
  const Symbol& own = symbol_of(reinterpret_cast<const void*>(&stacks_test::sleeps_here), symbols);
  CHECK(own.function == "stacks_test::sleeps_here(int, std::atomic<int>&)");
  CHECK(own.file.starts_with('/'));
  const int local = 0;
  CHECK(symbol_of(&local, symbols).function.empty());
  CHECK(symbol_of(nullptr, symbols).file.empty());
}

TEST_CASE("functions without their parameters") {
  struct Row {
    const char *function, *name;
  };
  for (const Row& row : {
           Row{"read", "read"},
           Row{"a::f(int, char (*)(int))", "a::f"},
           Row{"a::f(int) const", "a::f"},
           Row{"(anonymous namespace)::f()", "(anonymous namespace)::f"},
           Row{"a::operator()(int) const", "a::operator()"},
           Row{"f(int)::{lambda()#1}::operator()() const", "f(int)::{lambda()#1}::operator()"},
           Row{"f(int) [clone .part.0]", "f"},
           Row{")", ")"},
       }) {
    CHECK(without_parameters(row.function) == row.name);
  }
}

}  // namespace stacks_test
