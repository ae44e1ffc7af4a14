#include "control/meeting.h"

#include <algorithm>

#include "base/text.h"

namespace trireme::control {

void Meetings::come(int rank, std::int64_t sequence, const std::string& kind, std::string data, Answer answer) {
  if (!finished_.empty()) {
    answer(base::error("{} {} cannot complete: rank {} has already finished its training function", kind, sequence,
                       base::rank_list({finished_.begin(), finished_.end()})));
    return;
  }
  auto [it, first] = meetings_.try_emplace(sequence);
  Meeting& meeting = it->second;
  if (first) meeting.kind = kind;
  if (rank == 0) meeting.data = std::move(data);
  meeting.waiting[rank] = std::move(answer);
  if (meeting.kind != kind) {
    fail(sequence, fmt::format("rank {} called {} where another rank called {}", rank, kind, meeting.kind));
    return;
  }
  if (static_cast<int>(meeting.waiting.size()) < num_ranks_) return;
  Meeting complete = std::move(meeting);
  meetings_.erase(it);
  for (auto& [each, leave] : complete.waiting) leave(complete.data);
}

void Meetings::finished(int rank) {
  finished_.insert(rank);
  while (!meetings_.empty()) {
    auto sequence = meetings_.begin()->first;
    fail(sequence, fmt::format("{} {} cannot complete: rank {} has finished its training function without it",
                               meetings_.begin()->second.kind, sequence, rank));
  }
}

std::int64_t Meetings::waiting(int rank) const {
  return std::count_if(meetings_.begin(), meetings_.end(),
                       [rank](const auto& each) { return each.second.waiting.contains(rank); });
}

void Meetings::fail(std::int64_t sequence, const std::string& why) {
  auto node = meetings_.extract(sequence);
  for (auto& [rank, leave] : node.mapped().waiting) leave(base::Error(why));
}

void Meetings::clear(int num_ranks) {
  num_ranks_ = num_ranks;
  meetings_.clear();
  finished_.clear();
}

}  // namespace trireme::control
