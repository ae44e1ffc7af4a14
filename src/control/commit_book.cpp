#include "control/commit_book.h"

#include <algorithm>

#include "base/check.h"

namespace trireme::control {
namespace {

constexpr std::size_t kCheckpointsAhead = 2;

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace

bool ReadyCheckpoint::in_memory() const {
  // A validation reads the files in the storage.
  if (nodes.empty() || !validation.is_null()) return false;
  std::map<std::string, const Value*> by_path;
  for (const auto& [rank, list] : files) {
    if (!list.empty() && !nodes.contains(rank)) return false;
    for (const auto& record : list) {
      const auto* fields = record.get_if<List>();
      const auto* path = fields && !fields->empty() ? fields->front().get_if<std::string>() : nullptr;
      if (!path) return false;
      // Ranks have stored different content under one name: the storage decides which one counts.
      const auto [same, first] = by_path.emplace(*path, &record);
      if (!first && *same->second != record) return false;
    }
  }
  return !by_path.empty();
}

CommitBook::CommitBook(int num_ranks, std::int64_t first_report, Dict positions)
    : next_(at(num_ranks), first_report),
      finished_(at(num_ranks), false),
      silent_(at(num_ranks), false),
      reported_(at(num_ranks), false),
      unheard_(num_ranks),
      taken_(first_report),
      resume_at_(first_report),
      first_positions_(positions),
      resume_positions_(std::move(positions)) {}

CommitBook CommitBook::next_attempt(int num_ranks) const {
  CommitBook next(num_ranks, resume_at_, resume_positions_);
  next.last_metrics_ = last_metrics_;
  next.last_metrics_index_ = last_metrics_index_;
  return next;
}

CommitBook CommitBook::resumed_earlier(std::int64_t first_report, Dict positions) const {
  CommitBook book(static_cast<int>(next_.size()), first_report, std::move(positions));
  book.last_metrics_ = last_metrics_;
  book.last_metrics_index_ = last_metrics_index_;
  return book;
}

bool CommitBook::counts_as_arrived(int rank, std::int64_t index) const {
  return finished_[at(rank)] || silent_[at(rank)] || next_[at(rank)] > index;
}

void CommitBook::report(int rank, std::int64_t index, const RankReport& report) {
  const auto& [metrics, checkpoint, validation, positions] = report;
  TRIREME_CHECK(index == next_[at(rank)], "rank {} reported {} instead of {}", rank, index, next_[at(rank)]);
  next_[at(rank)] = index + 1;
  if (!reported_[at(rank)]) {
    reported_[at(rank)] = true;
    if (!finished_[at(rank)] && !silent_[at(rank)]) --unheard_;
  }
  if (silent_[at(rank)]) wake_up(rank, index);
  if (rank == 0) {
    last_metrics_ = metrics;
    last_metrics_index_ = index;
  }
  auto it = pending_.find(index);
  if (it == pending_.end()) {
    if (!checkpoint) return;
    it = pending_.emplace(index, Pending{}).first;
    Pending& made = it->second;
    made.name = *checkpoint;
    made.metrics_rank = rank;
    made.metrics = metrics;
    if (rank != 0 && last_metrics_index_ == index && next_[0] > index) {
      made.metrics_rank = 0;
      made.metrics = *last_metrics_;
    }
    for (int other = 0; other < static_cast<int>(next_.size()); ++other)
      made.arrived += counts_as_arrived(other, index);
  } else {
    Pending& pending = it->second;
    // A finished rank is already counted, but a thread that it left behind may still report.
    if (!finished_[at(rank)]) ++pending.arrived;
    if (rank < pending.metrics_rank) {
      pending.metrics_rank = rank;
      pending.metrics = metrics;
    }
  }
  if (checkpoint) it->second.uploading.insert(rank);
  if (!validation.is_null() && rank < it->second.validation_rank) {
    it->second.validation_rank = rank;
    it->second.validation = validation;
  }
  if (checkpoint && !positions.empty()) add_positions(it->second, rank, positions);
}

// A rank that was given up on reports after all: checkpoints that it has not reported wait for it again. The current
// report counts it once, like any other.
void CommitBook::wake_up(int rank, std::int64_t index) {
  silent_[at(rank)] = false;
  if (finished_[at(rank)]) return;
  for (auto it = pending_.lower_bound(index); it != pending_.end(); ++it) --it->second.arrived;
}

void CommitBook::add_positions(Pending& pending, int rank, const Dict& positions) {
  bool any = false;
  for (const auto& [name, position] : positions) {
    if (position.is_null()) continue;
    any = true;
    const auto [it, first] = pending.taken_up.try_emplace(name, rank, position);
    if (!first && rank < it->second.first) it->second = {rank, position};
  }
  // A rank that has read data takes precedence over one that has not started.
  const bool speaks = std::pair(!any, rank) < std::pair(!pending.positions_taken_up, pending.positions_rank);
  if (!speaks) return;
  pending.positions_rank = rank;
  pending.positions_taken_up = any;
  pending.positions = positions;
}

Dict CommitBook::positions_of(const Pending& pending) const {
  Dict found;
  for (const auto& [name, position] : pending.positions) {
    const auto other = pending.taken_up.find(name);
    const Value* known = !position.is_null()               ? &position
                         : other != pending.taken_up.end() ? &other->second.second
                                                           : first_positions_.find(name);
    if (known) found[name] = *known;
  }
  return found;
}

void CommitBook::validated(std::int64_t index, const Metrics& found) {
  if (index != last_metrics_index_ || !last_metrics_) return;
  for (const auto& [key, value] : found) (*last_metrics_)[key] = value;
}

void CommitBook::uploaded(int rank, std::int64_t index, List files, int nodes) {
  auto it = pending_.find(index);
  if (it == pending_.end()) return;  // already taken without this rank, or dropped with its attempt
  it->second.uploading.erase(rank);
  it->second.files[rank] = std::move(files);
  if (nodes > 0) it->second.nodes[rank] = nodes;
}

void CommitBook::finished(int rank) {
  if (finished_[at(rank)]) return;
  for (auto& [index, pending] : pending_) pending.arrived += !counts_as_arrived(rank, index);
  finished_[at(rank)] = true;
  if (!reported_[at(rank)] && !silent_[at(rank)]) --unheard_;
}

bool CommitBook::held_up_by_silent_ranks() const { return unheard_ > 0 && pending_.size() >= kCheckpointsAhead; }

void CommitBook::give_up_on_silent_ranks() {
  if (!held_up_by_silent_ranks()) return;
  for (int rank = 0; rank < static_cast<int>(next_.size()); ++rank) {
    if (reported_[at(rank)] || finished_[at(rank)] || silent_[at(rank)]) continue;
    for (auto& [index, pending] : pending_) ++pending.arrived;
    silent_[at(rank)] = true;
    --unheard_;
  }
}

std::vector<std::string> CommitBook::waiting_for(int rank) const {
  std::vector<std::string> names;
  for (const auto& [index, pending] : pending_) {
    if (!counts_as_arrived(rank, index) || pending.uploading.contains(rank)) names.push_back(pending.name);
  }
  return names;
}

void CommitBook::committed(std::int64_t index, Dict positions) {
  if (index < resume_at_) return;
  resume_at_ = index + 1;
  resume_positions_ = std::move(positions);
}

std::int64_t CommitBook::next_report() const {
  return next_.empty() ? resume_at_ : *std::max_element(next_.begin(), next_.end());
}

std::vector<ReadyCheckpoint> CommitBook::take_ready() {
  std::vector<ReadyCheckpoint> ready;
  while (!pending_.empty()) {
    auto first = pending_.begin();
    if (first->second.arrived < static_cast<int>(next_.size()) || !first->second.uploading.empty()) break;
    Pending& pending = first->second;
    taken_ = first->first + 1;
    ReadyCheckpoint made{first->first,
                         pending.name,
                         std::move(pending.metrics),
                         std::move(pending.validation),
                         positions_of(pending),
                         std::move(pending.files),
                         {},
                         std::move(pending.nodes)};
    for (int rank = 0; rank < static_cast<int>(next_.size()); ++rank) {
      if (silent_[at(rank)] && !made.files.contains(rank)) made.missing.push_back(rank);
    }
    ready.push_back(std::move(made));
    pending_.erase(first);
  }
  return ready;
}

std::map<std::int64_t, std::vector<int>> CommitBook::waiting() const {
  std::map<std::int64_t, std::vector<int>> result;
  for (const auto& [index, pending] : pending_) {
    auto& ranks = result[index];
    for (int rank = 0; rank < static_cast<int>(next_.size()); ++rank) {
      if (!counts_as_arrived(rank, index)) ranks.push_back(rank);
    }
  }
  return result;
}

}  // namespace trireme::control
