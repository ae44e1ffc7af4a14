#include "data/digest_verify.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/text.h"
#include "data/digest_records.h"
#include "data/pipeline.h"
#include "data/sample_order.h"

namespace trireme::data {
namespace {

// One pass of an attempt, over all ranks.
struct Segment {
  int attempt = 0;
  PassStart start;     // with the layout's fragment_rows
  Span rows;           // of the epoch, consumed by all ranks
  bool ended = false;  // on every rank
  bool over = false;   // after its last step, on every rank
  std::string open;    // the rank that has not ended it, or ended it at a different row

  std::int64_t epoch() const { return start.epoch; }
  std::int64_t size() const {
    return std::accumulate(start.layout.fragment_rows.begin(), start.layout.fragment_rows.end(), std::int64_t{0});
  }
};

using Ranks = std::map<int, RankLog>;

// Compares the order of rows; the seed only matters if something is shuffled.
bool same_order(Layout a, Layout b) {
  const auto shuffles = [](const Layout& each) { return each.shuffle_fragments || each.window_rows > 1; };
  if (!shuffles(a) && !shuffles(b)) a.seed = b.seed = 0;
  return a == b;
}

std::string order_text(const Layout& layout) {
  return fmt::format("seed {}, {} virtual shards, windows of {} rows, fragments {}shuffled", layout.seed,
                     layout.virtual_shards, layout.window_rows, layout.shuffle_fragments ? "" : "not ");
}

// Checks one rank's lines of a pass. Sets `end` to the row after its last line.
std::string check_pass(const LoggedPass& pass, const PassStart& start, const Steps& steps, SampleOrder& order,
                       std::int64_t& end) {
  const int rank = pass.context.whole ? 0 : pass.context.rank;
  std::int64_t step = 0;
  for (const auto& line : pass.stretches) {
    if (line.span.begin != end) {
      return fmt::format("rank {} consumed rows {} to {} after row {}", pass.context.rank, line.span.begin,
                         line.span.end, end);
    }
    std::int64_t rows = 0;
    std::uint64_t digest = 0;
    for (; step < steps.count() && steps[step].end <= line.span.end; ++step) {
      const Span batch = steps[step];
      Span slots = own_slots(batch, rank, start.cutting.world, start.cutting.pad_to(batch));
      rows += slots.size();
      for (const auto& part :
           share(batch, order.virtual_shards(), rank, start.cutting.world, start.cutting.pad_to(batch))) {
        order.each(part, [&](std::int64_t sample) {
          if (slots.begin == slots.end) return;  // padding of the batch
          digest += row_digest(batch.begin + slots.begin++, sample);
        });
      }
      end = batch.end;
    }
    if (end != line.span.end) {
      return fmt::format("rank {} consumed rows {} to {}, but no batch ends there", pass.context.rank, line.span.begin,
                         line.span.end);
    }
    if (rows != line.rows) {
      return fmt::format("rows {} to {}: rank {} consumed {} of them, but its share is {}", line.span.begin,
                         line.span.end, pass.context.rank, line.rows, rows);
    }
    if (digest != line.digest) {
      return fmt::format("rows {} to {}: rank {} consumed the wrong rows, or in the wrong order", line.span.begin,
                         line.span.end, pass.context.rank);
    }
  }
  if (!pass.end) return "";
  if (pass.end->at != end) {
    return fmt::format("rank {} ended at row {}, but its last rows end before row {}", pass.context.rank, pass.end->at,
                       end);
  }
  if (pass.end->over && step != steps.count()) {
    return fmt::format("rank {} reports the end of the epoch at row {}, before its last batch", pass.context.rank, end);
  }
  return "";
}

// Empty if both ranks started the pass in the same way.
std::string different_start(const LoggedPass& a, const LoggedPass& b) {
  const auto differ = [&](const char* what, auto first, auto second) {
    return fmt::format("rank {} began at {} {} and rank {} at {} {}", a.context.rank, what, first, b.context.rank, what,
                       second);
  };
  if (a.start.epoch != b.start.epoch) return differ("epoch", a.start.epoch, b.start.epoch);
  if (a.start.begin != b.start.begin) return differ("row", a.start.begin, b.start.begin);
  if (a.context.world != b.context.world) return "ranks disagree on the number of ranks";
  if (a.fragments != b.fragments) return "ranks read datasets with different fragments";
  if (!same_order(a.start.layout, b.start.layout)) {
    return fmt::format("rank {} has a different order ({}) than rank {} ({})", a.context.rank,
                       order_text(a.start.layout), b.context.rank, order_text(b.start.layout));
  }
  if (a.start.cutting != b.start.cutting) {
    return fmt::format(
        "rank {} and rank {} split the epoch differently: batches of {} and {} rows, or different options",
        a.context.rank, b.context.rank, a.start.cutting.batch_rows, b.start.cutting.batch_rows);
  }
  return "";
}

// The history of a dataset, attempt by attempt, for all ranks together or for one rank that reads all rows.
class History {
 public:
  History(std::string name, const DatasetLog& log, const RunFacts& facts)
      : name_(std::move(name)), log_(log), facts_(facts) {}

  // `alone`: a rank that reads all rows. Positions are those of the lowest rank: a rank that did not take part before,
  // or consumes nothing, may have any position.
  void add_attempt(int attempt, const Ranks& ranks, bool alone = false) {
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

  // For a rank that returns after attempts without it: its earlier lines are a separate history.
  void break_off(std::vector<EpochVerdict>& verdicts) {
    finished_ = false;
    tell(verdicts);
    segments_.clear();
    problems_.clear();
  }

  void tell(std::vector<EpochVerdict>& verdicts) {
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

 private:
  // The first problem explains the others.
  void add_problem(std::int64_t epoch, std::string problem) { problems_.try_emplace(epoch, std::move(problem)); }

  // A pass with nothing left to do, at a position that earlier attempts must have reached.
  void add_idle_attempt(int attempt, const Ranks& ranks) {
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
      drop_repeated(idle);
      segments_.empty() ? check_beginning(idle) : check_continuity(idle);
      return;
    }
  }

  static std::vector<int> expected_ranks(const Ranks& ranks) {
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

  // Nothing if some ranks did not reach this pass.
  std::optional<Segment> check_together(int attempt, const Ranks& ranks, const std::vector<int>& expected,
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

  // The end of each rank's lines.
  std::vector<std::int64_t> check_members(const std::vector<const LoggedPass*>& members, const Segment& segment) {
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

  void append(Segment segment, bool first_of_attempt) {
    if (first_of_attempt) drop_repeated(segment);
    segments_.empty() ? check_beginning(segment) : check_continuity(segment);
    segments_.push_back(std::move(segment));
    check_same_order();
  }

  // Removes rows that an attempt consumed after the position at which a later attempt starts.
  void drop_repeated(const Segment& next) {
    const std::pair place{next.epoch(), next.rows.begin};
    while (!segments_.empty() && std::pair(segments_.back().epoch(), segments_.back().rows.begin) >= place) {
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

  void check_beginning(const Segment& segment) {
    if (anywhere_ || (segment.epoch() == 0 && segment.rows.begin == 0)) return;
    const auto earlier = facts_.took.begin();
    if (segment.start.loaded && (earlier == facts_.took.end() || earlier->first >= segment.attempt)) return;
    add_problem(segment.epoch(), fmt::format("attempt {} began with row {} of epoch {}, but the log has no "
                                             "earlier rows",
                                             segment.attempt, segment.rows.begin, segment.epoch()));
  }

  void check_continuity(const Segment& next) {
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

  // Before the next epoch starts, or the run ends.
  void require_ended(const Segment& segment) {
    if (!segment.open.empty()) add_problem(segment.epoch(), segment.open);
    if (segment.open.empty() && !segment.ended) {
      add_problem(segment.epoch(), fmt::format("it was not resumed after row {}", segment.rows.end));
    }
  }

  // For the segments of the last segment's epoch.
  void check_same_order() {
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

  // The number of samples that occur more than once in the segments of an epoch.
  static std::optional<std::int64_t> repeated_rows(const std::vector<Segment>& segments) {
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

  std::string name_;
  const DatasetLog& log_;
  const RunFacts& facts_;
  std::vector<Segment> segments_;                 // without rows that were repeated
  std::map<std::int64_t, std::string> problems_;  // by epoch, also for rows that were repeated
  bool finished_ = false;                         // the last attempt, on all ranks
  bool anywhere_ = false;                         // the current attempt may start at any position
};

int world_of(const Ranks& ranks) {
  for (const auto& [rank, log] : ranks) {
    if (!log.passes.empty()) return log.passes.front().context.world;
  }
  return 0;
}

// Includes attempts that consumed nothing: they do not log it.
bool is_whole(const DatasetLog& log) {
  for (const auto& [attempt, ranks] : log.attempts) {
    for (const auto& [rank, mine] : ranks) {
      if (!mine.passes.empty()) return mine.passes.front().context.whole;
    }
  }
  return false;
}

void verify_dataset(const std::string& name, const DatasetLog& log, const RunFacts& facts,
                    std::vector<EpochVerdict>& verdicts) {
  if (!is_whole(log)) {
    History history(name, log, facts);
    for (const auto& [attempt, ranks] : log.attempts) history.add_attempt(attempt, ranks);
    history.tell(verdicts);
    return;
  }
  std::map<int, History> alone;
  int world = 0;  // of the previous attempt
  for (const auto& [attempt, ranks] : log.attempts) {
    for (const auto& [rank, mine] : ranks) {
      auto [found, added] = alone.try_emplace(rank, fmt::format("{} (rank {})", name, rank), log, facts);
      History& history = found->second;
      // The other ranks continued while this rank did not exist.
      if (world > 0 && world <= rank) history.break_off(verdicts);
      history.add_attempt(attempt, {{rank, mine}}, true);
    }
    if (const int now = world_of(ranks); now > 0) world = now;
  }
  for (auto& [rank, history] : alone) history.tell(verdicts);
}

// Workers that have finished although their log does not end with that.
void verify_ends(const std::string& name, const DatasetLog& log, const RunFacts& facts,
                 std::vector<EpochVerdict>& verdicts) {
  for (const auto& [attempt, rank] : facts.finished) {
    const auto ranks = log.attempts.find(attempt);
    const RankLog* mine =
        ranks != log.attempts.end() && ranks->second.contains(rank) ? &ranks->second.at(rank) : nullptr;
    if (mine && mine->finished) continue;
    EpochVerdict missing;
    missing.dataset = name;
    missing.epoch = mine && !mine->passes.empty() ? mine->passes.back().start.epoch : 0;
    missing.problem =
        fmt::format("rank {} finished attempt {}, but its log ends earlier: lines are missing", rank, attempt);
    const auto known = std::find_if(verdicts.begin(), verdicts.end(), [&](const EpochVerdict& each) {
      return each.dataset == name && each.epoch == missing.epoch;
    });
    if (known == verdicts.end()) {
      verdicts.push_back(std::move(missing));
    } else if (known->problem.empty()) {
      known->problem = std::move(missing.problem);
    }
  }
}

}  // namespace

base::Result<std::vector<EpochVerdict>> verify_digests(const std::string& folder, const RunFacts& facts) {
  TRIREME_ASSIGN(const auto datasets, read_digest_logs(folder));
  std::vector<EpochVerdict> verdicts;
  std::set<AttemptAndRank> logged;
  for (const auto& [name, log] : datasets) {
    verify_dataset(name, log, facts, verdicts);
    verify_ends(name, log, facts, verdicts);
    for (const auto& [attempt, ranks] : log.attempts) {
      for (const auto& [rank, mine] : ranks) logged.emplace(attempt, rank);
    }
  }
  for (const auto& [attempt, rank] : facts.took) {
    if (logged.contains({attempt, rank})) continue;
    EpochVerdict missing;
    missing.dataset = "(unknown)";
    missing.problem = fmt::format("rank {} of attempt {} reported consumed rows, but no log has them", rank, attempt);
    verdicts.push_back(std::move(missing));
  }
  return verdicts;
}

}  // namespace trireme::data
