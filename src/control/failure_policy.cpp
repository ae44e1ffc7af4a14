#include "control/failure_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.h"

namespace trireme::control {
namespace {

// What gloo, NCCL, MPI and plain sockets say when the other side is gone.
constexpr std::array<std::string_view, 12> kPeerLossPhrases = {"Connection closed by peer",
                                                               "Connection reset by peer",
                                                               "Broken pipe",
                                                               "Connection refused",
                                                               "ncclRemoteError",
                                                               "ncclSystemError",
                                                               "remote process exited",
                                                               "Socket closed",
                                                               "peer closed connection",
                                                               "Application timeout caused pair closure",
                                                               "Read error",
                                                               "Rank has been lost"};

// Lower explains more.
int weight(const Failure& failure) {
  if (failure.cause == "exception") return looks_like_peer_loss(failure) ? 2 : 0;
  return failure.cause == "lost" ? 1 : 0;
}

}  // namespace

bool looks_like_peer_loss(const Failure& failure) {
  if (failure.cause == "lost") return true;
  if (failure.cause != "exception") return false;
  return std::any_of(kPeerLossPhrases.begin(), kPeerLossPhrases.end(),
                     [&](std::string_view phrase) { return failure.message.find(phrase) != std::string::npos; });
}

std::size_t root_cause(const std::vector<Failure>& failures) {
  TRIREME_CHECK(!failures.empty(), "there is no failure to explain");
  auto root = std::min_element(failures.begin(), failures.end(),
                               [](const Failure& a, const Failure& b) { return weight(a) < weight(b); });
  return static_cast<std::size_t>(root - failures.begin());
}

std::vector<Failure> in_order_of_blame(std::vector<Failure> failures) {
  if (failures.empty()) return failures;
  auto root = failures.begin() + static_cast<std::ptrdiff_t>(root_cause(failures));
  std::rotate(failures.begin(), root, root + 1);
  for (auto it = failures.begin() + 1; it != failures.end(); ++it) it->collateral = looks_like_peer_loss(*it);
  return failures;
}

std::string headline(const Failure& failure) {
  std::string who = fmt::format("rank {}", failure.rank);
  if (failure.pid > 0) who += fmt::format(" (pid {}, host {})", failure.pid, failure.host);
  std::string first_line = failure.message.substr(0, failure.message.find('\n'));
  std::string what = failure.error_type.empty() ? first_line : failure.error_type;
  if (!failure.error_type.empty() && !first_line.empty()) what += ": " + first_line;
  return fmt::format("{} failed: {}", who, what);
}

bool within_budget(std::int64_t used, std::int64_t limit) { return limit < 0 || used < limit; }

}  // namespace trireme::control
