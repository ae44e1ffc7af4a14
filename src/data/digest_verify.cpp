#include "data/digest_verify.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "base/json.h"
#include "base/text.h"
#include "data/pipeline.h"
#include "storage/local_files.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

struct Record {
  std::int64_t epoch = 0;
  Span span;
  int rank = 0;
  int world = 1;
  int attempt = 0;
  bool whole = false;
  std::int64_t rows = 0;
  std::uint64_t digest = 0;
  std::uint64_t seed = 0;
  std::int64_t virtual_shards = 1;
  std::int64_t window_rows = 0;

  std::pair<std::int64_t, std::int64_t> place() const { return {epoch, span.begin}; }
};

base::Result<std::int64_t> number(const Dict& line, const char* key) {
  const Value* found = line.find(key);
  const auto* value = found ? found->get_if<std::int64_t>() : nullptr;
  if (!value) return base::error("'{}' is missing or no number", key);
  return *value;
}

base::Result<Record> parse_record(const std::string& text) {
  TRIREME_ASSIGN(const Dict line, base::parse_json_dict(text));
  Record record;
  TRIREME_ASSIGN(record.epoch, number(line, "epoch"));
  TRIREME_ASSIGN(record.span.begin, number(line, "begin"));
  TRIREME_ASSIGN(record.span.end, number(line, "end"));
  TRIREME_ASSIGN(record.rows, number(line, "rows"));
  TRIREME_ASSIGN(record.window_rows, number(line, "window_rows"));
  TRIREME_ASSIGN(record.virtual_shards, number(line, "virtual_shards"));
  if (record.virtual_shards < 1 || record.window_rows < 0) return base::error("no order has such windows and shards");
  TRIREME_ASSIGN(const auto rank, number(line, "rank"));
  TRIREME_ASSIGN(const auto world, number(line, "world"));
  TRIREME_ASSIGN(const auto attempt, number(line, "attempt"));
  TRIREME_ASSIGN(const auto digest, number(line, "digest"));
  TRIREME_ASSIGN(const auto seed, number(line, "seed"));
  record.rank = static_cast<int>(rank);
  record.world = static_cast<int>(world);
  record.attempt = static_cast<int>(attempt);
  record.digest = static_cast<std::uint64_t>(digest);
  record.seed = static_cast<std::uint64_t>(seed);
  const Value* whole = line.find("whole");
  record.whole = whole && whole->get_if<bool>() && *whole->get_if<bool>();
  return record;
}

base::Result<std::vector<Record>> read_records(const fs::path& folder, const std::string& dataset) {
  std::vector<Record> records;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(dataset + ".") || !name.ends_with(".jsonl")) continue;
    const std::string rank = name.substr(dataset.size() + 1, name.size() - dataset.size() - 7);
    if (rank.empty() || rank.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path());
    std::int64_t at = 0;
    for (std::string line; std::getline(file, line);) {
      ++at;
      TRIREME_ASSIGN(auto record, parse_record(line), "{}, line {}", entry.path().native(), at);
      records.push_back(record);
    }
  }
  if (failed) return base::error("could not list {}: {}", folder.native(), failed.message());
  return records;
}

base::Result<Layout> read_layout(const fs::path& path) {
  TRIREME_ASSIGN(const std::string text, storage::read_file(path.native()));
  TRIREME_ASSIGN(const Dict dict, base::parse_json_dict(text), "could not read {}", path.native());
  Layout layout;
  const Value* shuffled = dict.find("shuffle_fragments");
  const Value* rows = dict.find("fragment_rows");
  if (!shuffled || !shuffled->get_if<bool>() || !rows || !rows->get_if<List>()) {
    return base::error("{} is no layout of a dataset", path.native());
  }
  layout.shuffle_fragments = *shuffled->get_if<bool>();
  constexpr std::int64_t kMost = std::int64_t{1} << 40;  // files may be damaged; sums must not overflow
  for (const auto& each : *rows->get_if<List>()) {
    const auto* count = each.get_if<std::int64_t>();
    if (!count || *count < 0 || *count > kMost) return base::error("{} is no layout of a dataset", path.native());
    layout.fragment_rows.push_back(*count);
  }
  return layout;
}

// What later attempts have taken again does not count.
void drop_repeated(std::vector<Record>& records) {
  std::map<int, std::pair<std::int64_t, std::int64_t>> begins;  // of attempts
  for (const auto& each : records) {
    auto [known, added] = begins.emplace(each.attempt, each.place());
    if (!added) known->second = std::min(known->second, each.place());
  }
  std::erase_if(records, [&](const Record& each) {
    return std::any_of(begins.upper_bound(each.attempt), begins.end(),
                       [&](const auto& later) { return each.place() >= later.second; });
  });
}

// The records of one attempt in one epoch, and where all its ranks had come to. Nothing where they do not fit together.
struct Portion {
  Span span;
  std::string problem;
};

// A line that was damaged would send the arithmetic anywhere.
std::string implausible(const Record& record, std::int64_t size) {
  const bool inside = record.span.begin >= 0 && record.span.begin < record.span.end && record.span.end <= size;
  if (inside && record.virtual_shards <= size && record.window_rows <= size) return "";
  return fmt::format("a line of rank {} cannot be: rows {} to {} of {}, {} virtual shards, windows of {}", record.rank,
                     record.span.begin, record.span.end, size, record.virtual_shards, record.window_rows);
}

// Samples are numbered through all fragments.
class SampleOrder {
 public:
  SampleOrder(const Layout& layout, std::int64_t epoch) : order_(layout, epoch) {
    std::exclusive_scan(layout.fragment_rows.begin(), layout.fragment_rows.end(), std::back_inserter(firsts_),
                        std::int64_t{0});
  }

  std::int64_t virtual_shards() const { return order_.virtual_shards(); }

  // Of a stretch of a virtual shard. A sum does not depend on the order, so only a window that was taken in part needs
  // its permutation, and memory.
  std::uint64_t digest_of(std::int64_t shard, Span rows) const {
    std::uint64_t digest = 0;
    const auto add = [&](std::int64_t sample) { digest += sample_hash(sample); };
    const std::int64_t width = order_.window_rows();
    if (width == 0) {
      for_each(shard, rows, add);
      return digest;
    }
    for (std::int64_t window = rows.begin / width; window * width < rows.end; ++window) {
      const Span all{window * width, std::min((window + 1) * width, order_.rows_of(shard))};
      const Span taken{std::max(all.begin, rows.begin), std::min(all.end, rows.end)};
      if (taken == all) {
        for_each(shard, all, add);
        continue;
      }
      std::vector<std::int64_t> samples;
      for_each(shard, all, [&](std::int64_t sample) { samples.push_back(sample); });
      const auto permutation = order_.permutation(shard, window);
      for (std::int64_t row = taken.begin; row < taken.end; ++row) {
        add(samples[permutation[static_cast<std::size_t>(row - all.begin)]]);
      }
    }
    return digest;
  }

 private:
  // As they are read.
  template <typename Function>
  void for_each(std::int64_t shard, Span rows, const Function& function) const {
    std::int64_t left = rows.size();
    for (const auto& piece : order_.pieces(shard, rows.begin)) {
      const std::int64_t count = std::min(piece.count, left);
      for (std::int64_t i = 0; i < count; ++i) function(firsts_[piece.fragment] + piece.row + i);
      left -= count;
      if (left == 0) return;
    }
  }

  Order order_;
  std::vector<std::int64_t> firsts_;  // of the fragments
};

Portion check_portion(const std::vector<Record>& records, Layout layout) {
  const Record& first = records.front();
  const std::int64_t size = std::accumulate(layout.fragment_rows.begin(), layout.fragment_rows.end(), std::int64_t{0});
  for (const auto& each : records) {
    if (auto problem = implausible(each, size); !problem.empty()) return {{0, 0}, std::move(problem)};
  }
  std::map<int, std::vector<Record>> by_rank;
  std::int64_t begin = first.span.begin;
  for (const auto& each : records) {
    by_rank[each.whole ? 0 : each.rank].push_back(each);
    begin = std::min(begin, each.span.begin);
  }
  Portion portion{{begin, begin}, {}};
  const int world = first.whole ? 1 : first.world;
  if (static_cast<int>(by_rank.size()) < world) return portion;  // some have not come to log anything
  std::set<std::int64_t> common;
  for (auto& [rank, mine] : by_rank) {
    std::sort(mine.begin(), mine.end(), [](const Record& a, const Record& b) { return a.span.begin < b.span.begin; });
    std::set<std::int64_t> ends;
    std::int64_t at = begin;
    for (const auto& each : mine) {
      if (each.span.begin != at) {
        portion.problem =
            fmt::format("rank {} took rows {} to {} after row {}", rank, each.span.begin, each.span.end, at);
        return portion;
      }
      at = each.span.end;
      ends.insert(at);
    }
    std::set<std::int64_t> both;
    std::set_intersection(common.begin(), common.end(), ends.begin(), ends.end(), std::inserter(both, both.end()));
    common = rank == by_rank.begin()->first ? ends : both;
  }
  if (common.empty()) return portion;
  portion.span.end = *common.rbegin();
  std::int64_t rows = 0;
  std::uint64_t digest = 0;
  for (const auto& [rank, mine] : by_rank) {
    for (const auto& each : mine) {
      if (each.span.end > portion.span.end) continue;
      rows += each.rows;
      digest += each.digest;
    }
  }
  layout.seed = first.seed;
  layout.virtual_shards = first.virtual_shards;
  layout.window_rows = first.window_rows;
  if (rows != portion.span.size()) {
    portion.problem = fmt::format("rows {} to {}: {} were taken", portion.span.begin, portion.span.end, rows);
  } else if (digest != expected_digest(layout, first.epoch, portion.span)) {
    portion.problem = fmt::format("rows {} to {}: their digest is not the one of each row once", portion.span.begin,
                                  portion.span.end);
  }
  return portion;
}

EpochVerdict check_epoch(const std::map<int, std::vector<Record>>& attempts, const Layout& layout) {
  EpochVerdict verdict;
  verdict.epoch = attempts.begin()->second.front().epoch;
  verdict.attempts = static_cast<int>(attempts.size());
  for (std::int64_t rows : layout.fragment_rows) verdict.size += rows;
  for (const auto& [attempt, records] : attempts) {
    const Portion portion = check_portion(records, layout);
    if (portion.span.begin != verdict.seen && verdict.problem.empty()) {
      verdict.problem =
          fmt::format("attempt {} went on at row {}, and row {} was next", attempt, portion.span.begin, verdict.seen);
    }
    if (verdict.problem.empty()) verdict.problem = portion.problem;
    verdict.seen = std::max(verdict.seen, portion.span.end);
  }
  return verdict;
}

}  // namespace

std::uint64_t expected_digest(const Layout& layout, std::int64_t epoch, Span span) {
  const SampleOrder order(layout, epoch);
  std::uint64_t digest = 0;
  for (const auto& [shard, rows] : share(span, order.virtual_shards(), 0, 1)) digest += order.digest_of(shard, rows);
  return digest;
}

base::Result<std::vector<EpochVerdict>> verify_digests(const std::string& folder) {
  std::vector<EpochVerdict> verdicts;
  std::error_code failed;
  std::set<std::string> datasets;
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    if (entry.path().extension() == ".json") datasets.insert(entry.path().stem());
  }
  if (failed) return base::error("could not list {}: {}", folder, failed.message());
  for (const auto& dataset : datasets) {
    TRIREME_ASSIGN(const Layout layout, read_layout(fs::path(folder) / (dataset + ".json")));
    TRIREME_ASSIGN(auto records, read_records(folder, dataset));
    std::map<int, std::vector<Record>> groups;  // by rank where everybody sees all rows
    for (const auto& each : records) groups[each.whole ? each.rank : -1].push_back(each);
    for (auto& [rank, group] : groups) {
      drop_repeated(group);
      std::map<std::int64_t, std::map<int, std::vector<Record>>> epochs;
      for (const auto& each : group) epochs[each.epoch][each.attempt].push_back(each);
      for (const auto& [epoch, attempts] : epochs) {
        verdicts.push_back(check_epoch(attempts, layout));
        verdicts.back().dataset = rank < 0 ? dataset : fmt::format("{} (rank {})", dataset, rank);
      }
    }
  }
  return verdicts;
}

}  // namespace trireme::data
