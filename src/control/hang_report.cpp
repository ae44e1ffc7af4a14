#include "control/hang_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/clock.h"
#include "base/text.h"

namespace trireme::control {
namespace {

// More would make the line unreadable; the file has all.
constexpr std::size_t kMaxGroups = 6;

// Ranks in the same situation.
struct Group {
  std::int64_t behind = 0;  // reports that other ranks have made and these have not
  bool answered = false;
  bool returned = false;
  std::string place;
  std::vector<int> ranks;
};

std::string time_text(double seconds) {
  return seconds < 60.0 ? fmt::format("{:.0f} s", seconds) : base::duration_text(seconds);
}

std::string place_of(const RankPlace& rank) {
  if (rank.returned) return "";
  if (!rank.answered) return rank.process;
  return rank.where.empty() ? "an unknown location" : rank.where;
}

// Ranks in front first, larger groups before smaller ones; then the ranks that are behind, the furthest behind last.
std::vector<Group> groups_of(const std::vector<RankPlace>& ranks, std::int64_t most) {
  std::vector<Group> groups;
  for (const RankPlace& rank : ranks) {
    Group own{most - rank.reports, rank.answered, rank.returned, place_of(rank), {rank.rank}};
    auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return std::tie(group.behind, group.answered, group.returned, group.place) ==
             std::tie(own.behind, own.answered, own.returned, own.place);
    });
    if (same == groups.end()) {
      groups.push_back(std::move(own));
    } else {
      same->ranks.push_back(rank.rank);
    }
  }
  std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    if (a.behind != b.behind) return a.behind < b.behind;
    if (a.returned != b.returned) return b.returned;
    if (a.answered != b.answered) return a.answered;
    return a.ranks.size() > b.ranks.size();
  });
  return groups;
}

std::string who(const Group& group, std::size_t all) {
  if (group.ranks.size() == all && all > 1) return fmt::format("all {} ranks", all);
  return fmt::format("{} {}", group.ranks.size() == 1 ? "rank" : "ranks", base::rank_list(group.ranks));
}

std::string sentence(const Group& group, std::size_t all, bool waits) {
  const bool one = group.ranks.size() == 1;
  const std::string are = one ? "is" : "are";
  const std::string silence =
      fmt::format("{} not answer{}", one ? "does" : "do", group.place.empty() ? "" : fmt::format(": {}", group.place));
  std::string text = who(group, all) + " ";
  if (group.returned) {
    text += fmt::format("{} returned from the training function", one ? "has" : "have");
    const auto behind = static_cast<std::size_t>(group.behind);
    return behind == 0 ? text : text + fmt::format(", {} behind the others", base::count_of(behind, "report"));
  }
  if (group.behind == 0) {
    if (!group.answered) return text + silence;
    return text + fmt::format("{} in {}", waits ? (one ? "waits" : "wait") : are, group.place);
  }
  text += fmt::format("{} behind by {}", are, base::count_of(group.behind, "report"));
  return text + (group.answered ? fmt::format(": in {}", group.place) : fmt::format(" and {}", silence));
}

std::string summary_of(const std::vector<RankPlace>& ranks) {
  std::int64_t most = 0;
  double silent_s = ranks.front().silent_s;
  for (const RankPlace& rank : ranks) {
    most = std::max(most, rank.reports);
    silent_s = std::min(silent_s, rank.silent_s);
  }
  const auto groups = groups_of(ranks, most);
  // Only in this case do the ranks in front certainly wait for others.
  const bool waits = groups.back().behind > 0;
  std::vector<std::string> parts;
  std::size_t left_out = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    // The ranks that are behind explain the rest: the last group is always shown.
    const bool told = groups.size() <= kMaxGroups || i + 2 <= kMaxGroups || i + 1 == groups.size();
    if (told) {
      parts.push_back(sentence(groups[i], ranks.size(), waits));
    } else {
      left_out += groups[i].ranks.size();
    }
  }
  if (left_out > 0) parts.push_back(fmt::format("{} elsewhere", base::count_of(left_out, "other rank")));
  // The stacks may also be requested of a run that makes progress.
  constexpr double kSilence = 1.0;
  if (silent_s < kSilence) return base::join(parts, ", ");
  return fmt::format("no {} for {}: {}", most == 0 ? "first report" : "report", time_text(silent_s),
                     base::join(parts, ", "));
}

std::string section(const RankPlace& rank) {
  const std::string last =
      rank.reports == 0
          ? fmt::format("no report in {}", time_text(rank.silent_s))
          : fmt::format("{}, the last {} ago", base::count_of(rank.reports, "report"), time_text(rank.silent_s));
  std::string text = fmt::format("==== rank {}: {}; ", rank.rank, last);
  if (!rank.answered) {
    return text + fmt::format("did not answer{}{}\n", rank.process.empty() ? "" : ": ", rank.process);
  }
  if (rank.returned) text += "has returned from the training function; ";
  return text + fmt::format("in {}\n{}{}", rank.where.empty() ? "an unknown location" : rank.where, rank.text,
                            rank.text.ends_with('\n') ? "" : "\n");
}

}  // namespace

HangReport hang_report(std::vector<RankPlace> ranks) {
  if (ranks.empty()) return {.summary = "no worker is running", .text = "no worker is running\n"};
  std::sort(ranks.begin(), ranks.end(), [](const RankPlace& a, const RankPlace& b) { return a.rank < b.rank; });
  HangReport report{.summary = summary_of(ranks), .text = ""};
  report.text = report.summary + "\n";
  for (const RankPlace& rank : ranks) {
    report.text += "\n" + section(rank);
    report.where.push_back(rank.where);
  }
  return report;
}

}  // namespace trireme::control
