#include "control/collective_rendezvous.h"

#include <algorithm>

#include "base/text.h"

namespace trireme::control {

void CollectiveRendezvous::come(int rank, std::int64_t sequence, const std::string& kind, std::string data,
                                Answer answer) {
  if (!finished_.empty()) {
    answer(base::error("{} {} cannot complete: rank {} has already finished its training function", kind, sequence,
                       base::rank_list({finished_.begin(), finished_.end()})));
    return;
  }
  auto [it, first] = collectives_.try_emplace(sequence);
  Collective& collective = it->second;
  if (first) collective.kind = kind;
  if (rank == 0) collective.data = std::move(data);
  collective.waiting[rank] = std::move(answer);
  if (collective.kind != kind) {
    fail(sequence, fmt::format("rank {} called {} while another rank called {}", rank, kind, collective.kind));
    return;
  }
  if (static_cast<int>(collective.waiting.size()) < num_ranks_) return;
  Collective complete = std::move(collective);
  collectives_.erase(it);
  for (auto& [each, leave] : complete.waiting) leave(complete.data);
}

void CollectiveRendezvous::finished(int rank) {
  finished_.insert(rank);
  while (!collectives_.empty()) {
    auto sequence = collectives_.begin()->first;
    fail(sequence, fmt::format("{} {} cannot complete: rank {} has finished its training function without calling it",
                               collectives_.begin()->second.kind, sequence, rank));
  }
}

std::int64_t CollectiveRendezvous::waiting(int rank) const {
  return std::count_if(collectives_.begin(), collectives_.end(),
                       [rank](const auto& each) { return each.second.waiting.contains(rank); });
}

void CollectiveRendezvous::fail(std::int64_t sequence, const std::string& why) {
  auto node = collectives_.extract(sequence);
  for (auto& [rank, leave] : node.mapped().waiting) leave(base::Error(why));
}

void CollectiveRendezvous::clear(int num_ranks) {
  num_ranks_ = num_ranks;
  collectives_.clear();
  finished_.clear();
}

}  // namespace trireme::control
