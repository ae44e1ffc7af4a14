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
  // The default is the last attempt: it shows the current state of the run.
  if (!options.attempt && !files.empty()) {
    int last = files.back().attempt;
    std::erase_if(files, [&](const LogFile& file) { return file.attempt != last; });
  }
  return files;
}

Result<void> explain_nothing(const std::string& path, const LogsOptions& options) {
  auto files = control::log_files(path);
  if (files.empty()) return error("no logs in {}: no worker has started yet", path);
  std::set<int> attempts;
  for (const auto& file : files) attempts.insert(file.attempt);
  if (options.attempt && !attempts.contains(*options.attempt)) {
    return error("attempt {} does not exist; attempts of this run: {}", *options.attempt,
                 base::rank_list(std::vector<int>(attempts.begin(), attempts.end())));
  }
  std::vector<int> ranks;
  int attempt = options.attempt.value_or(files.back().attempt);
  for (const auto& file : files) {
    if (file.attempt == attempt) ranks.push_back(file.rank);
  }
  return error("rank {} does not exist in attempt {}; its ranks: {}", options.rank.value_or(0), attempt,
               base::rank_list(ranks));
}

void print_line(int rank, const std::string& line, bool prefixed) {
  if (prefixed) fmt::print("[rank {}] {}\n", rank, line);
  else fmt::print("{}\n", line);
}

// Prints the current content, rank by rank: lines of different ranks have no common order.
void print_once(const std::vector<LogFile>& files, std::optional<std::size_t> lines) {
  for (const auto& file : files) {
    api::LogFollower follower;
    follower.follow(file.rank, file.path, lines);
    // In chunks: a log may be larger than memory.
    const base::MonotonicTime now = std::chrono::steady_clock::now();
    for (auto some = follower.poll(now); !some.empty(); some = follower.poll(now)) {
      for (const auto& line : some) print_line(line.rank, line.line, files.size() > 1);
    }
    for (const auto& line : follower.finish()) print_line(line.rank, line.line, files.size() > 1);
  }
}

// The driver process may outlive the run, so this checks whether the run has withdrawn its address.
bool is_over(const control::RunEntry& entry) {
  auto now = control::RunRegistry().entry(entry.id);
  return !now || !control::is_active(*now);
}

Result<int> follow(const control::RunEntry& entry, const LogsOptions& options) {
  constexpr auto kPause = std::chrono::milliseconds(100);
  api::LogFollower follower;
  for (const auto& file : chosen_logs(entry.path, options)) follower.follow(file.rank, file.path, options.lines);
  while (true) {
    // Checked first, so that lines written before the end are still read.
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
