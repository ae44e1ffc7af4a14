#include "base/hex.h"
#include "cli/commands.h"
#include "wire/client.h"

namespace trireme::cli {

using base::error;
using base::Result;

Result<control::RunEntry> find_active(const std::string& what) {
  TRIREME_ASSIGN(auto entry, control::RunRegistry().find_run(what));
  if (!control::is_active(entry)) {
    return error("run {} is not running; `trireme show {}` shows how it ended", entry.name, entry.name);
  }
  // The controller of a run on a cluster listens for other machines.
  if (control::is_elsewhere(entry) && entry.address->starts_with("unix:")) {
    return error("run {} was started on {} and can only be reached from there; call this command on {}", entry.name,
                 entry.host, entry.host);
  }
  return entry;
}

Result<Value> ask(const control::RunEntry& entry, const wire::Message& request) {
  // The controller waits up to 3 s for the stack of a rank.
  constexpr auto kTimeout = std::chrono::seconds(10);
  auto secret = base::from_hex(entry.secret.value_or(""));
  if (!secret || secret->empty()) return error("the registry entry of run {} has no secret", entry.id);
  TRIREME_ASSIGN(auto reply, wire::ask(*entry.address, *secret, entry.id, request, kTimeout));
  if (reply.failure) return error("{}", *reply.failure);
  return std::move(reply.value);
}

}  // namespace trireme::cli
