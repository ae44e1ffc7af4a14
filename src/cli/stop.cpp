#include <fmt/format.h>
#include <unistd.h>

#include "base/hex.h"
#include "cli/commands.h"
#include "wire/client.h"

namespace trireme::cli {
namespace {

using base::error;
using base::Result;

Result<void> send_stop(const control::RunEntry& entry, bool hard) {
  auto secret = base::from_hex(entry.secret.value_or(""));
  if (!secret || secret->empty()) return error("the entry of run {} has no secret to prove", entry.id);
  wire::StopRun request;
  request.id = 1;
  request.why = fmt::format("trireme stop (pid {})", ::getpid());
  request.hard = hard;
  TRIREME_ASSIGN(auto reply, wire::ask(*entry.address, *secret, entry.id, request));
  if (reply.failure) return error("{}", *reply.failure);
  return {};
}

}  // namespace

Result<int> stop(const StopOptions& options) {
  TRIREME_ASSIGN(auto entry, control::RunRegistry().find_run(options.run));
  if (!control::is_active(entry)) {
    return error("run {} is not running; `trireme show {}` tells how it ended", entry.name, entry.name);
  }
  TRIREME_TRY(send_stop(entry, options.hard), "could not stop run {} (driver pid {}); Ctrl-C in its terminal does too",
              entry.name, entry.pid);
  fmt::print("run {} was asked to stop{}\n", entry.name, options.hard ? " at once" : "");
  return kDone;
}

}  // namespace trireme::cli
