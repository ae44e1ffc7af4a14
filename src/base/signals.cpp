#include "base/signals.h"

#include <pthread.h>

#include <csignal>

namespace trireme::base {

void block_signals() {
  sigset_t signals;
  ::sigfillset(&signals);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) ::sigdelset(&signals, fault);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace trireme::base
