#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "control/event.h"
#include "control/state.h"

// Which failure is the root cause, and what it means for the run. Pure functions.

namespace trireme::control {

// An error caused by the loss of another rank: "Connection closed by peer" and similar.
bool looks_like_peer_loss(const Failure& failure);

// The same, raised by a library for collectives: it must be about another rank.
bool is_loss_in_collective(const Failure& failure);

// A collective operation took longer than its timeout: some rank did not take part.
bool is_collective_timeout(const Failure& failure);

// The last line in a log that shows that NCCL's watchdog or JAX ended the process because of another rank: a timeout,
// or a peer that is lost. Empty: there is none, or the watchdog reported an error of the process's own device.
std::string watchdog_line(std::string_view log);
bool ends_by_jax(std::string_view line);

// The text with every number replaced. Errors that are otherwise equal may contain pids, addresses, sizes and times:
// CUDA's out-of-memory error has the pid and the free memory.
std::string without_numbers(std::string_view text);

// Whether no better explanation is expected. For a failed upload, the exception that report() raises is the better one.
bool is_clear(const Failure& failure);

// Adds a failure. If the rank has already failed, the more informative failure is kept.
void add_failure(std::vector<Failure>& failures, Failure failure);

// Index of the root cause: a process that died or an original error comes before an error about a lost peer; among
// equals the earliest. The list must not be empty.
std::size_t root_cause(const std::vector<Failure>& failures);

// Marks failures that only follow from the root cause as collateral, and puts the root cause first.
std::vector<Failure> in_order_of_blame(std::vector<Failure> failures);

// "rank 1 (pid 4711, host a) failed: ValueError: boom".
std::string headline(const Failure& failure);

// "every rank waits, and no rank can make progress: rank 0 for store key a; rank 1 in a barrier or broadcast; rank 2
// has returned from the training function".
std::string deadlock_message(const std::map<int, RankWait>& waits, const std::vector<int>& returned);

// For ranks that returned while another rank waited for them in a collective.
std::string returned_early_message(const std::vector<int>& returned, int waiting);

// For ranks that did not take part in a collective that the others waited in until its timeout. `where`: the place of
// the first of them; may be empty.
std::string stayed_away_message(const std::vector<int>& away, const std::vector<int>& waited, const std::string& where);

// As in the event log and in Python, without the exception itself, which only Python can read. For Failure and the
// public WorkerFailure, which has the same members.
template <typename T>
Dict to_dict(const T& failure) {
  Dict dict{{"rank", failure.rank}, {"pid", failure.pid}, {"host", failure.host}, {"cause", failure.cause}};
  dict["error_type"] = failure.error_type;
  dict["message"] = failure.message;
  dict["traceback"] = failure.traceback;
  dict["log_tail"] = List(failure.log_tail.begin(), failure.log_tail.end());
  dict["collateral"] = failure.collateral;
  return dict;
}

// Whether one more failure is within a budget of `limit` (-1: unlimited) of which `used` are spent.
bool within_budget(std::int64_t used, std::int64_t limit);

}  // namespace trireme::control
