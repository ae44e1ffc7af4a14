#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>
#include <thread>

#include "api/log_follower.h"
#include "base/text.h"
#include "cli/commands.h"

namespace trireme::cli {
namespace {

using base::error;
using base::Result;
using control::LogFile;

std::vector<LogFile> chosen_logs(const std::string& path, const LogsOptions& options) {
  auto files = control::log_files(path);
  std::erase_if(files, [&](const LogFile& file) {
    return (options.rank && file.rank != *options.rank) || (options.attempt && file.attempt != *options.attempt);
  });
  // Without a wish the last attempt is meant: it is the one that tells how the run is doing.
  if (!options.attempt && !files.empty()) {
    int last = files.back().attempt;
    std::erase_if(files, [&](const LogFile& file) { return file.attempt != last; });
  }
  return files;
}

Result<void> explain_nothing(const std::string& path, const LogsOptions& options) {
  auto files = control::log_files(path);
  if (files.empty()) return error("there are no logs in {}: no worker was started yet", path);
  std::set<int> attempts;
  for (const auto& file : files) attempts.insert(file.attempt);
  if (options.attempt && !attempts.contains(*options.attempt)) {
    return error("there is no attempt {}; attempts of this run: {}", *options.attempt,
                 base::rank_list(std::vector<int>(attempts.begin(), attempts.end())));
  }
  std::vector<int> ranks;
  int attempt = options.attempt.value_or(files.back().attempt);
  for (const auto& file : files) {
    if (file.attempt == attempt) ranks.push_back(file.rank);
  }
  return error("there is no rank {} in attempt {}; its ranks: {}", options.rank.value_or(0), attempt,
               base::rank_list(ranks));
}

void print_line(int rank, const std::string& line, bool prefixed) {
  if (prefixed) fmt::print("[rank {}] {}\n", rank, line);
  else fmt::print("{}\n", line);
}

// What is there now. Lines of different ranks have no order among each other, so rank comes after rank.
void print_once(const std::vector<LogFile>& files, std::optional<std::size_t> lines) {
  for (const auto& file : files) {
    api::LogFollower follower;
    follower.follow(file.rank, file.path, lines);
    // Piece by piece: a log may be larger than the memory.
    const base::MonotonicTime now = std::chrono::steady_clock::now();
    for (auto some = follower.poll(now); !some.empty(); some = follower.poll(now)) {
      for (const auto& line : some) print_line(line.rank, line.line, files.size() > 1);
    }
    for (const auto& line : follower.finish()) print_line(line.rank, line.line, files.size() > 1);
  }
}

// The driver's process may go on after the run: what counts is that the run took its address back.
bool is_over(const control::RunEntry& entry) {
  auto now = control::RunRegistry().entry(entry.id);
  return !now || !control::is_active(*now);
}

Result<int> follow(const control::RunEntry& entry, const LogsOptions& options) {
  constexpr auto kPause = std::chrono::milliseconds(100);
  api::LogFollower follower;
  for (const auto& file : chosen_logs(entry.path, options)) follower.follow(file.rank, file.path, options.lines);
  while (true) {
    // Asked first: what was written before the end is still read after it.
    bool over = is_over(entry);
    for (const auto& file : chosen_logs(entry.path, options)) follower.follow(file.rank, file.path);
    const auto lines = over ? follower.finish() : follower.poll(std::chrono::steady_clock::now());
    for (const auto& line : lines) print_line(line.rank, line.line, !options.rank);
    std::fflush(stdout);
    if (over || std::ferror(stdout)) return kDone;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

Result<int> logs(const LogsOptions& options) {
  TRIREME_ASSIGN(auto entry, find_entry(options.run));
  if (options.follow && control::is_active(entry)) return follow(entry, options);
  auto files = chosen_logs(entry.path, options);
  if (files.empty()) TRIREME_TRY(explain_nothing(entry.path, options));
  print_once(files, options.lines);
  return kDone;
}

}  // namespace trireme::cli
