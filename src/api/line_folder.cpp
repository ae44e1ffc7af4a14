#include "api/line_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/text.h"

namespace trireme::api {
namespace {

base::MonotonicTime after(base::MonotonicTime now, base::Seconds wait) {
  return now + std::chrono::duration_cast<base::MonotonicTime::duration>(wait);
}

}  // namespace

std::string to_text(const OutputLine& output) {
  std::string text = fmt::format("[rank {}] {}", base::rank_list(output.ranks), output.line);
  if (output.repeats > 1) text += fmt::format(" (repeated {} times)", output.repeats);
  return text;
}

void LineFolder::feed(int rank, std::string_view line, base::MonotonicTime now) {
  RankState& state = ranks_[rank];
  if (state.waits && state.last_line == line) {
    ++state.place->counts[rank];
    return;
  }
  // The rank printed a different line: the count of its repeats is complete and must be shown before this line.
  if (state.waits && state.place->known) state.place->due = now;

  bool known = state.printed && !state.waits && state.last_line == line;
  Place place = joinable(state, line, known, now);
  if (place == waiting_.end()) place = enqueue(line, known, after(now, known ? kRepeatWindow : kJoinWindow));
  ++place->counts[rank];
  state.last_line = line;
  state.printed = true;
  state.waits = true;
  state.place = place;
  if (waiting_.size() > kMaxWaiting) release(waiting_.begin(), early_);
}

std::vector<OutputLine> LineFolder::flush(base::MonotonicTime now) {
  std::vector<OutputLine> out = std::exchange(early_, {});
  for (Place place = waiting_.begin(); place != waiting_.end();) {
    if (due(*place, now)) {
      place = release(place, out);
    } else if (place->known) {
      ++place;  // its ranks have no later lines, so other ranks may overtake it
    } else {
      break;
    }
  }
  return out;
}

std::vector<OutputLine> LineFolder::finish() {
  std::vector<OutputLine> out = std::exchange(early_, {});
  for (Place place = waiting_.begin(); place != waiting_.end();) place = release(place, out);
  return out;
}

LineFolder::Place LineFolder::enqueue(std::string_view line, bool known, base::MonotonicTime due) {
  Place place = waiting_.insert(
      waiting_.end(), {.number = next_number_++, .line = std::string(line), .counts = {}, .known = known, .due = due});
  by_line_.emplace(place->line, place);
  return place;
}

LineFolder::Place LineFolder::joinable(const RankState& state, std::string_view line, bool known,
                                       base::MonotonicTime now) {
  Place best = waiting_.end();
  auto [first, last] = by_line_.equal_range(line);
  for (auto it = first; it != last; ++it) {
    Place place = it->second;
    if (place->known != known || place->due <= now) continue;
    if (state.waits && place->number <= state.place->number) continue;
    if (best == waiting_.end() || place->number < best->number) best = place;
  }
  return best;
}

LineFolder::Place LineFolder::release(Place place, std::vector<OutputLine>& out) {
  std::map<int, std::vector<int>, std::greater<>> ranks_by_count;
  for (const auto& [rank, count] : place->counts) {
    ranks_by_count[count].push_back(rank);
    RankState& state = ranks_[rank];
    if (state.waits && state.place == place) state.waits = false;
  }
  for (auto& [count, ranks] : ranks_by_count) out.push_back({std::move(ranks), place->line, count});

  auto [first, last] = by_line_.equal_range(place->line);
  by_line_.erase(std::find_if(first, last, [&](const auto& item) { return item.second == place; }));
  return waiting_.erase(place);
}

bool LineFolder::due(const Waiting& waiting, base::MonotonicTime now) const {
  if (waiting.due <= now) return true;
  return !waiting.known && num_ranks_ > 0 && static_cast<int>(waiting.counts.size()) >= num_ranks_;
}

}  // namespace trireme::api
