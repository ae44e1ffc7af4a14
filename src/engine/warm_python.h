#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/zygote.h"

// Starts a zygote, sends it work and gives up on it. The zygote is an optimization: if anything is wrong with it, the
// owner executes the workers instead. Used by the engine's thread alone.

namespace trireme::engine {

class WarmPython {
 public:
  struct Owner {
    std::function<void(std::uint64_t id, Process process)> forked;
    // This fork will not happen: execute the worker instead.
    std::function<void(std::uint64_t id)> unavailable;
    std::function<void(int pid, ExitStatus status)> exited;
    // No further exits of children will be reported; they must die with the zygote.
    std::function<void()> gone;
  };

  // `argv` starts a zygote; empty in programs without Python.
  WarmPython(std::vector<std::string> argv, Owner owner) : argv_(std::move(argv)), owner_(std::move(owner)) {}

  void warm_up(const std::map<std::string, std::string>& env, const std::vector<std::string>& preload,
               const std::vector<std::string>& sys_path);
  // Returns true if a fork was requested: `forked` or `unavailable` follows with this id.
  bool fork(std::uint64_t id, const ProcessSpec& spec);
  // Cancels a fork that has not been sent to the zygote. Returns false if it may already have happened.
  bool cancel(std::uint64_t id);

  bool alive() const;
  int fd() const { return zygote_ ? zygote_->fd() : -1; }
  short events() const { return zygote_ ? zygote_->events() : short{0}; }
  // Sends pending requests, and gives up on a zygote that does not answer in time.
  void advance(base::MonotonicTime now);
  std::optional<base::MonotonicTime> next_deadline() const;
  void on_readable();

  // Ends the zygote; returns after it has exited.
  void shut_down();

 private:
  struct Pending {
    ProcessSpec spec;
    std::optional<base::MonotonicTime> deadline;  // set when the request is sent
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
  int preloads_ = 0;  // requested and not answered
  bool usable_ = true;
  std::map<std::uint64_t, Pending> pending_;
};

}  // namespace trireme::engine
