#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/zygote.h"

// When a zygote is started, given work and given up. It is an optimisation: whatever goes wrong with it, its owner is
// told to execute the workers instead. Used by the engine's thread alone.

namespace trireme::engine {

class WarmPython {
 public:
  struct Owner {
    std::function<void(std::uint64_t id, Process process)> forked;
    // This fork will not come: execute instead.
    std::function<void(std::uint64_t id)> unavailable;
    std::function<void(int pid, ExitStatus status)> exited;
    // How children end will not be told any more; they are to die with the zygote.
    std::function<void()> gone;
  };

  // `argv` starts a zygote; empty where there is no Python.
  WarmPython(std::vector<std::string> argv, Owner owner) : argv_(std::move(argv)), owner_(std::move(owner)) {}

  void warm_up(std::map<std::string, std::string> env, const std::vector<std::string>& preload,
               const std::vector<std::string>& sys_path);
  // True when a fork was asked for under that id: `forked` or `unavailable` will answer.
  bool fork(std::uint64_t id, const ProcessSpec& spec);
  // Takes back a fork that the zygote has not been told of. False when it may happen already.
  bool cancel(std::uint64_t id);

  bool alive() const;
  int fd() const { return zygote_ ? zygote_->fd() : -1; }
  short events() const { return zygote_ ? zygote_->events() : short{0}; }
  // Sends what waits, and gives up on a zygote that owes an answer for too long.
  void advance(base::MonotonicTime now);
  std::optional<base::MonotonicTime> next_deadline() const;
  void on_readable();

  // Ends the zygote; returns when it is gone.
  void shut_down();

 private:
  struct Pending {
    ProcessSpec spec;
    std::optional<base::MonotonicTime> deadline;  // set when it was sent
  };

  bool warm() const { return ready_ && preloads_ == 0; }
  void handle(Zygote::Message message);
  void send_pending(base::MonotonicTime now);
  void lose(const std::string& why);
  void give_up(const std::string& why);

  std::vector<std::string> argv_;
  Owner owner_;
  std::optional<Zygote> zygote_;
  bool ready_ = false;
  int preloads_ = 0;  // asked for and not answered
  bool usable_ = true;
  std::map<std::uint64_t, Pending> pending_;
};

}  // namespace trireme::engine
