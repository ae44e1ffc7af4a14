#pragma once

#include <map>
#include <string>
#include <vector>

#include "control/event.h"
#include "control/state.h"

// Which failure came first, and what it means for the run. Pure.

namespace trireme::control {

// An error that a rank gets because another one is gone: "Connection closed by peer" and its kin.
bool looks_like_peer_loss(const Failure& failure);

// The same of a collective's library, where nothing else can be meant than another rank.
bool is_loss_in_collective(const Failure& failure);

// Whether nothing better is to come. What a checkpoint's upload says of itself, the exception that report() raises with
// it says better.
bool is_clear(const Failure& failure);

// Adds one of a rank that may have failed already: of each rank the failure that says most is kept.
void add_failure(std::vector<Failure>& failures, Failure failure);

// Position of the failure that explains the others: a process that died or an error of its own before one that only
// says that a peer is gone; among equals the earliest. The list must not be empty.
std::size_t root_cause(const std::vector<Failure>& failures);

// Marks all but the root as collateral where they only follow from it, and puts the root first.
std::vector<Failure> in_order_of_blame(std::vector<Failure> failures);

// "rank 1 (pid 4711, host a) failed: ValueError: boom".
std::string headline(const Failure& failure);

// "all ranks wait for what no rank can do any more: rank 0 for store key a, rank 1 in a barrier; rank 2 has returned".
std::string deadlock_message(const std::map<int, RankWait>& waits, const std::vector<int>& returned);

// Of ranks that were over when another one waited for them in a collective.
std::string returned_early_message(const std::vector<int>& returned, int waiting);

// As the event log and Python have it, without the exception itself, which only Python can read. For Failure and for
// the public WorkerFailure, which has the same members.
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

// Whether one more failure is within a budget of `limit` (-1: without end) of which `used` are gone.
bool within_budget(std::int64_t used, std::int64_t limit);

}  // namespace trireme::control
