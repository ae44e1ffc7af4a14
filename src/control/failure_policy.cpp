#include "control/failure_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace trireme::control {
namespace {

// Messages of gloo, NCCL, MPI and plain sockets when the peer is lost.
constexpr std::array<std::string_view, 18> kPeerLossPhrases = {"Connection closed by peer",
                                                               "NCCL communicator was aborted",
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
                                                               "Rank has been lost",
                                                               "Horovod has been shut down",
                                                               "Ring Allreduce failed",  // XGBoost
                                                               "Poll error condition",
                                                               "Socket recv error",  // LightGBM
                                                               "Socket send error"};

// Messages of NCCL's watchdog, also as an exception (TORCH_NCCL_BLOCKING_WAIT), and of gloo, after a timeout.
constexpr std::array<std::string_view, 3> kTimeoutPhrases = {
    "Watchdog caught collective operation timeout", "for recv operation to complete", "for send operation to complete"};

constexpr std::string_view kWatchdogEnd = "watchdog thread terminated with exception";
// The watchdog of a rank that did not time out itself ends its process because another rank has asked it to.
constexpr std::string_view kDumpSignal = "dump signal from another rank";

// What JAX prints before it ends a process because it has lost its coordinator, or because another rank is silent.
constexpr std::string_view kJaxEnd = "Terminating process because the JAX distributed service detected fatal errors";

bool contains_any(std::string_view text, std::span<const std::string_view> phrases) {
  return std::any_of(phrases.begin(), phrases.end(),
                     [&](std::string_view phrase) { return text.find(phrase) != std::string_view::npos; });
}

// More would make the line unreadable.
constexpr std::size_t kMostGroups = 6;
constexpr std::size_t kMostKeys = 3;

std::string describe_wait(const RankWait& wait) {
  std::vector<std::string> parts;
  if (!wait.keys.empty()) {
    const auto shown = std::min(wait.keys.size(), kMostKeys);
    std::string keys = base::join({wait.keys.begin(), wait.keys.begin() + static_cast<std::ptrdiff_t>(shown)}, ", ");
    if (shown < wait.keys.size()) keys += fmt::format(" and {} more", wait.keys.size() - shown);
    parts.push_back(fmt::format("for store key {}", keys));
  }
  if (wait.collectives > 0) parts.emplace_back("in a barrier or broadcast");
  return base::join(parts, " and ");
}

// A lower weight is a more likely root cause.
int weight(const Failure& failure) {
  if (failure.cause == "exception" || failure.cause == "watchdog") return looks_like_peer_loss(failure) ? 2 : 0;
  return failure.cause == "lost" ? 1 : 0;
}

}  // namespace

bool looks_like_peer_loss(const Failure& failure) {
  if (failure.cause == "lost" || failure.cause == "watchdog") return true;
  if (failure.cause != "exception") return false;
  return contains_any(failure.message, kPeerLossPhrases) || is_collective_timeout(failure);
}

bool is_collective_timeout(const Failure& failure) {
  if (failure.cause != "exception" && failure.cause != "watchdog") return false;
  return contains_any(failure.message, kTimeoutPhrases) || failure.message.find(kDumpSignal) != std::string::npos;
}

bool ends_by_jax(std::string_view line) { return line.find(kJaxEnd) != std::string_view::npos; }

std::string watchdog_line(std::string_view log) {
  std::string_view found;
  while (!log.empty()) {
    const std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(log.size(), line.size() + 1));
    if (ends_by_jax(line)) found = line;
    const bool ended = line.find(kWatchdogEnd) != std::string_view::npos;
    // An illegal memory access or a failed assertion on its own device is a cause, not a consequence.
    if (ended && line.find("CUDA error") != std::string_view::npos) return "";
    const bool peer = ended && contains_any(line, kPeerLossPhrases);
    if (peer || contains_any(line, kTimeoutPhrases) || line.find(kDumpSignal) != std::string_view::npos) found = line;
  }
  // "[rank5]:[E623 21:21:18.8 ProcessGroupNCCL.cpp:2197] [PG ID 0 ... Rank 5] Process group watchdog thread terminated
  // with exception: [Rank 5] Watchdog caught ...": the text starts after the last prefix.
  constexpr std::string_view kThen = "exception: ";
  if (const auto at = found.rfind(kThen); at != std::string_view::npos) found.remove_prefix(at + kThen.size());
  // "F1119 04:32:08.974302   24893 client.h:80] Terminating process because ..."
  if (ends_by_jax(found)) found.remove_prefix(found.find(kJaxEnd));
  return std::string(found);
}

std::string without_numbers(std::string_view text) {
  std::string plain;
  auto digit = [](char each) { return each >= '0' && each <= '9'; };
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!digit(text[at])) {
      plain += text[at];
      continue;
    }
    // 0x7f3a, 12, 3.50: letters of a hexadecimal number count only after 0x.
    const bool hexadecimal = text.substr(at).starts_with("0x");
    if (hexadecimal) ++at;
    auto part = [&](char each) {
      return digit(each) || (hexadecimal && std::isxdigit(static_cast<unsigned char>(each)) != 0);
    };
    while (at + 1 < text.size() &&
           (part(text[at + 1]) || (text[at + 1] == '.' && at + 2 < text.size() && digit(text[at + 2])))) {
      ++at;
    }
    plain += '#';
  }
  return plain;
}

bool is_loss_in_collective(const Failure& failure) {
  if (failure.cause == "watchdog") return true;
  if (failure.cause != "exception" || !looks_like_peer_loss(failure)) return false;
  constexpr std::array<std::string_view, 3> kLibraries = {"gloo", "nccl", "Horovod"};
  return contains_any(failure.message, kLibraries);
}

bool is_clear(const Failure& failure) { return !looks_like_peer_loss(failure) && failure.error_type != "UploadError"; }

void add_failure(std::vector<Failure>& failures, Failure failure) {
  auto earlier =
      std::find_if(failures.begin(), failures.end(), [&](const Failure& each) { return each.rank == failure.rank; });
  if (earlier == failures.end()) {
    failures.push_back(std::move(failure));
  } else if (is_clear(failure) && !is_clear(*earlier)) {
    *earlier = std::move(failure);
  }
}

std::size_t root_cause(const std::vector<Failure>& failures) {
  TRIREME_CHECK(!failures.empty(), "no failure to explain");
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

std::string returned_early_message(const std::vector<int>& returned, int waiting) {
  const bool one = returned.size() == 1;
  return fmt::format(
      "{} returned from the training function while rank {} waited for {} in a collective; every rank must call the "
      "same collectives the same number of times",
      one ? "it" : fmt::format("ranks {}", base::rank_list(returned)), waiting, one ? "it" : "them");
}

std::string stayed_away_message(const std::vector<int>& away, const std::vector<int>& waited,
                                const std::string& where) {
  return fmt::format("rank {} waited in a collective until its timeout, and {} did not take part{}",
                     base::rank_list(waited),
                     away.size() == 1 ? std::string("this rank") : fmt::format("ranks {}", base::rank_list(away)),
                     where.empty() ? "" : fmt::format(": in {}", where));
}

std::string deadlock_message(const std::map<int, RankWait>& waits, const std::vector<int>& returned) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;  // ranks that wait for the same thing
  for (const auto& [rank, wait] : waits) {
    const std::string what = describe_wait(wait);
    auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == what; });
    if (same == groups.end()) same = groups.insert(groups.end(), {what, {}});
    same->second.push_back(rank);
  }
  std::vector<std::string> parts;
  for (const auto& [what, ranks] : groups) {
    if (parts.size() == kMostGroups) break;
    parts.push_back(fmt::format("rank {} {}", base::rank_list(ranks), what));
  }
  if (groups.size() > parts.size()) {
    parts.push_back(fmt::format("and {} more", base::count_of(groups.size() - parts.size(), "group")));
  }
  std::string text = fmt::format("every rank waits, and no rank can make progress: {}", base::join(parts, "; "));
  if (!returned.empty()) {
    text += fmt::format("; rank {} {} returned from the training function", base::rank_list(returned),
                        returned.size() == 1 ? "has" : "have");
  }
  return text;
}

bool within_budget(std::int64_t used, std::int64_t limit) { return limit < 0 || used < limit; }

}  // namespace trireme::control
