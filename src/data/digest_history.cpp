#include "data/digest_history.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "data/digest_pass.h"

namespace trireme::data {
namespace {

std::vector<int> expected_ranks(const DigestHistory::Ranks& ranks) {
  for (const auto& [rank, log] : ranks) {
    if (log.passes.empty()) continue;
    const DigestContext& context = log.passes.front().context;
    if (context.whole) return {rank};
    std::vector<int> all(static_cast<std::size_t>(context.world));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  return {};
}

}  // namespace

void DigestHistory::add_attempt(int attempt, const Ranks& ranks, bool alone) {
  anywhere_ = alone && segments_.empty();
  std::vector<int> expected = expected_ranks(ranks);
  for (const auto& [rank, log] : ranks) {
    if (!log.problem.empty()) add_problem(log.passes.empty() ? 0 : log.passes.back().start.epoch, log.problem);
  }
  if (expected.empty()) {
    if (!alone) add_idle_attempt(attempt, ranks);
    return;
  }
  finished_ = std::all_of(expected.begin(), expected.end(), [&](int rank) {
    const auto found = ranks.find(rank);
    return (found != ranks.end() && found->second.finished) || facts_.finished.contains({attempt, rank});
  });
  std::size_t passes = 0;
  for (const auto& [rank, log] : ranks) {
    passes = std::max(passes, log.passes.size());
    if (rank < static_cast<int>(expected.size()) || expected.front() == rank || log.passes.empty()) continue;
    add_problem(log.passes.front().start.epoch,
                fmt::format("unexpected rank {}: there are only {} ranks", rank, expected.size()));
  }
  bool counts = true;
  for (std::size_t number = 0; number < passes; ++number) {
    auto segment = check_together(attempt, ranks, expected, number);
    counts = counts && segment;
    if (counts) append(*std::move(segment), number == 0);
  }
}

void DigestHistory::break_off(std::vector<EpochVerdict>& verdicts) {
  finished_ = false;
  tell(verdicts);
  segments_.clear();
  problems_.clear();
}

void DigestHistory::tell(std::vector<EpochVerdict>& verdicts) {
  if (!segments_.empty() && finished_) require_ended(segments_.back());
  std::map<std::int64_t, EpochVerdict> epochs;
  std::map<std::int64_t, std::set<int>> attempts;
  for (const auto& each : segments_) {
    auto [known, added] = epochs.try_emplace(each.epoch());
    EpochVerdict& verdict = known->second;
    if (added) verdict.first = each.rows.begin;
    verdict.size = each.size();
    verdict.seen = std::max(verdict.seen, each.rows.end);
    verdict.end = !each.ended ? EpochVerdict::End::kOpen
                  : each.over ? EpochVerdict::End::kOver
                              : EpochVerdict::End::kLeft;
    if (each.rows.size() > 0) attempts[each.epoch()].insert(each.attempt);
  }
  for (const auto& [epoch, problem] : problems_) epochs[epoch].problem = problem;
  for (auto& [epoch, verdict] : epochs) {
    verdict.dataset = name_;
    verdict.epoch = epoch;
    verdict.attempts = static_cast<int>(attempts[epoch].size());
    const bool nothing = verdict.seen == verdict.first && verdict.end != EpochVerdict::End::kOver;
    if (!nothing || !verdict.problem.empty()) verdicts.push_back(std::move(verdict));
  }
}

void DigestHistory::add_idle_attempt(int attempt, const Ranks& ranks) {
  finished_ = false;
  for (const auto& [rank, log] : ranks) {
    if (!log.finished) continue;
    const auto [epoch, row] = *log.finished;
    Segment idle;
    idle.attempt = attempt;
    idle.start.epoch = epoch;
    idle.start.begin = row;
    idle.start.loaded = true;
    idle.rows = {row, row};
    check_join(idle, true);
    return;
  }
}

std::optional<DigestHistory::Segment> DigestHistory::check_together(int attempt, const Ranks& ranks,
                                                                    const std::vector<int>& expected,
                                                                    std::size_t number) {
  std::vector<const LoggedPass*> members;
  std::vector<int> missing;
  for (int rank : expected) {
    const auto found = ranks.find(rank);
    if (found != ranks.end() && found->second.passes.size() > number) {
      members.push_back(&found->second.passes[number]);
    } else {
      missing.push_back(rank);
    }
  }
  if (members.empty()) return {};  // only ranks that do not exist
  const LoggedPass& leader = *members.front();
  Segment segment{attempt, leader.start, {leader.start.begin, leader.start.begin}, missing.empty(), true, ""};
  segment.start.layout.fragment_rows = log_.fragment_rows.at(leader.fragments);
  for (const auto* each : members) {
    if (auto problem = different_start(leader, *each); !problem.empty()) add_problem(segment.epoch(), problem);
  }
  std::vector<std::int64_t> ends = check_members(members, segment);
  if (!missing.empty()) {
    for (int rank : missing) {
      if (!facts_.finished.contains({attempt, rank}) && !(ranks.contains(rank) && ranks.at(rank).finished)) return {};
    }
    add_problem(segment.epoch(), fmt::format("{} {} did not take part", missing.size() == 1 ? "rank" : "ranks",
                                             base::rank_list(missing)));
    return segment;
  }
  const auto [least, most] = std::minmax_element(ends.begin(), ends.end());
  segment.rows.end = *least;
  for (std::size_t i = 0; i < members.size(); ++i) {
    segment.over = segment.over && members[i]->end && members[i]->end->over;
    if (!members[i]->end) {
      segment.ended = false;
      segment.open = fmt::format("the log of rank {} stops at row {}", members[i]->context.rank, ends[i]);
    }
  }
  if (segment.ended && *least != *most) {
    segment.open = fmt::format("rank {} stopped at row {} and rank {} at row {}",
                               members[static_cast<std::size_t>(least - ends.begin())]->context.rank, *least,
                               members[static_cast<std::size_t>(most - ends.begin())]->context.rank, *most);
  }
  return segment;
}

std::vector<std::int64_t> DigestHistory::check_members(const std::vector<const LoggedPass*>& members,
                                                       const Segment& segment) {
  std::vector<std::int64_t> ends;
  std::optional<SampleOrder> order;  // of the previous rank; usually the same for all
  std::optional<Layout> order_layout;
  for (const auto* each : members) {
    ends.push_back(each->start.begin);
    PassStart start = each->start;
    start.layout.fragment_rows = log_.fragment_rows.at(each->fragments);
    const std::int64_t size =
        std::accumulate(start.layout.fragment_rows.begin(), start.layout.fragment_rows.end(), std::int64_t{0});
    if (start.begin > size || start.layout.virtual_shards > std::max<std::int64_t>(size, 1) ||
        start.layout.window_rows > size) {
      add_problem(segment.epoch(), fmt::format("invalid line of rank {}: from row {} of {}, {}", each->context.rank,
                                               start.begin, size, order_text(start.layout)));
      continue;
    }
    const auto steps = Steps::cut(size, start.begin, start.cutting);
    if (!steps) {
      add_problem(segment.epoch(),
                  fmt::format("invalid line of rank {}: {}", each->context.rank, steps.error().message()));
      continue;
    }
    if (order_layout != start.layout) {
      order.emplace(start.layout, start.epoch);
      order_layout = start.layout;
    }
    if (auto problem = check_pass(*each, start, *steps, *order, ends.back()); !problem.empty()) {
      add_problem(segment.epoch(), std::move(problem));
    }
  }
  return ends;
}

void DigestHistory::append(Segment segment, bool first_of_attempt) {
  check_join(segment, first_of_attempt);
  segments_.push_back(std::move(segment));
  check_same_order();
}

void DigestHistory::check_join(const Segment& next, bool first_of_attempt) {
  std::optional<std::pair<std::int64_t, std::int64_t>> first;
  if (!segments_.empty()) first = segments_.front().place();
  if (first_of_attempt) drop_repeated(next);
  if (!segments_.empty()) {
    check_continuity(next);
  } else if (first != next.place()) {  // else all rows before are repeated, from a beginning that was checked
    check_beginning(next);
  }
}

void DigestHistory::drop_repeated(const Segment& next) {
  while (!segments_.empty() && segments_.back().place() >= next.place()) {
    segments_.pop_back();
  }
  if (segments_.empty()) return;
  Segment& last = segments_.back();
  if (last.epoch() != next.epoch() || last.rows.end <= next.rows.begin) return;
  const auto steps = Steps::cut(last.size(), last.start.begin, last.start.cutting);
  bool between = false;  // whether the position is between two batches
  for (std::int64_t low = 0, high = steps ? steps->count() : 0; low < high && !between;) {
    const std::int64_t middle = (low + high) / 2;
    const std::int64_t end = (*steps)[middle].end;
    between = end == next.rows.begin;
    (end < next.rows.begin ? low : high) = end < next.rows.begin ? middle + 1 : middle;
  }
  if (!between) {
    add_problem(next.epoch(),
                fmt::format("attempt {} resumed at row {}, in the middle of a batch", next.attempt, next.rows.begin));
  }
  last.rows.end = next.rows.begin;
  last.ended = last.over = false;
  last.open.clear();
}

void DigestHistory::check_beginning(const Segment& segment) {
  if (anywhere_ || (segment.epoch() == 0 && segment.rows.begin == 0)) return;
  const auto earlier = facts_.took.begin();
  if (segment.start.loaded && (earlier == facts_.took.end() || earlier->first >= segment.attempt)) return;
  add_problem(segment.epoch(), fmt::format("attempt {} began with row {} of epoch {}, but the log has no "
                                           "earlier rows",
                                           segment.attempt, segment.rows.begin, segment.epoch()));
}

void DigestHistory::check_continuity(const Segment& next) {
  const Segment& last = segments_.back();
  if (next.epoch() == last.epoch() && next.rows.begin == last.rows.end && next.start.loaded) return;
  if (next.epoch() == last.epoch() + 1 && next.rows.begin == 0) {
    require_ended(last);
    return;
  }
  if (next.epoch() == last.epoch()) {
    add_problem(next.epoch(), fmt::format("attempt {} resumed at row {}, but row {} was next", next.attempt,
                                          next.rows.begin, last.rows.end));
    return;
  }
  add_problem(next.epoch(), fmt::format("attempt {} resumed at row {} of epoch {} after row {} of epoch {}",
                                        next.attempt, next.rows.begin, next.epoch(), last.rows.end, last.epoch()));
}

void DigestHistory::require_ended(const Segment& segment) {
  if (!segment.open.empty()) add_problem(segment.epoch(), segment.open);
  if (segment.open.empty() && !segment.ended) {
    add_problem(segment.epoch(), fmt::format("it was not resumed after row {}", segment.rows.end));
  }
}

void DigestHistory::check_same_order() {
  const Segment& last = segments_.back();
  auto first = segments_.end() - 1;
  while (first != segments_.begin() && (first - 1)->epoch() == last.epoch()) --first;
  if (same_order(first->start.layout, last.start.layout)) return;
  std::string text = fmt::format("attempt {} resumed in a different order ({}) than attempt {} ({})", last.attempt,
                                 order_text(last.start.layout), first->attempt, order_text(first->start.layout));
  if (first->start.layout.fragment_rows != last.start.layout.fragment_rows) text += ", over different fragments";
  if (const auto repeated = repeated_rows({first, segments_.end()}); repeated && *repeated > 0) {
    text += fmt::format(": {} {} consumed twice, and as many not at all",
                        base::count_of(static_cast<std::size_t>(*repeated), "row"), *repeated == 1 ? "was" : "were");
  }
  add_problem(last.epoch(), std::move(text));
}

std::optional<std::int64_t> DigestHistory::repeated_rows(const std::vector<Segment>& segments) {
  constexpr std::int64_t kMost = std::int64_t{1} << 33;  // one bit per sample
  const std::int64_t size = segments.front().size();
  if (size > kMost) return {};
  std::vector<bool> taken(static_cast<std::size_t>(size));
  std::int64_t repeated = 0;
  for (const auto& each : segments) {
    if (each.size() != size) return {};
    const auto steps = Steps::cut(size, each.start.begin, each.start.cutting);
    SampleOrder order(each.start.layout, each.epoch());
    for (std::int64_t step = 0; steps && step < steps->count() && (*steps)[step].end <= each.rows.end; ++step) {
      for (const auto& part : share((*steps)[step], order.virtual_shards(), 0, 1)) {
        order.each(part, [&](std::int64_t sample) {
          auto bit = taken.at(static_cast<std::size_t>(sample));
          repeated += bit;
          bit = true;
        });
      }
    }
  }
  return repeated;
}

}  // namespace trireme::data
