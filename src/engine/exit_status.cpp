#include <csignal>

#include "engine/engine.h"

namespace trireme::engine {
namespace {

// sigabbrev_np() does the same, but requires glibc 2.32.
const char* signal_name(int number) {
  switch (number) {
    case SIGHUP: return "SIGHUP";
    case SIGINT: return "SIGINT";
    case SIGQUIT: return "SIGQUIT";
    case SIGILL: return "SIGILL";
    case SIGTRAP: return "SIGTRAP";
    case SIGABRT: return "SIGABRT";
    case SIGBUS: return "SIGBUS";
    case SIGFPE: return "SIGFPE";
    case SIGKILL: return "SIGKILL";
    case SIGUSR1: return "SIGUSR1";
    case SIGSEGV: return "SIGSEGV";
    case SIGUSR2: return "SIGUSR2";
    case SIGPIPE: return "SIGPIPE";
    case SIGALRM: return "SIGALRM";
    case SIGTERM: return "SIGTERM";
    case SIGSTKFLT: return "SIGSTKFLT";
    case SIGVTALRM: return "SIGVTALRM";
    case SIGPROF: return "SIGPROF";
    case SIGXCPU: return "SIGXCPU";
    case SIGXFSZ: return "SIGXFSZ";
    case SIGIO: return "SIGIO";
    case SIGPWR: return "SIGPWR";
    case SIGSYS: return "SIGSYS";
    default: return nullptr;
  }
}

}  // namespace

std::string to_string(const ExitStatus& status) {
  switch (status.kind) {
    case ExitStatus::Kind::kCode: return fmt::format("exit code {}", status.value);
    case ExitStatus::Kind::kSignal:
      if (const char* name = signal_name(status.value)) return fmt::format("signal {} ({})", name, status.value);
      return fmt::format("signal {}", status.value);
    case ExitStatus::Kind::kUnknown: break;
  }
  return "an unknown cause";
}

}  // namespace trireme::engine
