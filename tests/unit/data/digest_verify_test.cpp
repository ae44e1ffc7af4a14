#include "data/digest_verify.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>

#include "../temp_dir.h"
#include "base/json.h"
#include "data/digest_log.h"
#include "gang.h"

namespace digest_verify_test {

using namespace trireme;
using namespace trireme::data;
using tests::Case;
using tests::shard_of;
using tests::TempDir;

namespace {

namespace fs = std::filesystem;

struct Worker {
  std::shared_ptr<Shard> shard;
  std::unique_ptr<Pass> pass = {};
};

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A run with restarts, resizes, reports, abandoned epochs, and an end; all on the real pipeline.
class LoggedRun {
 public:
  LoggedRun(const Case& each, std::mt19937& random, bool equal, bool whole = false)
      : case_(each), random_(random), equal_(equal), whole_(whole) {}

  // Ends after some epochs. The actions of the attempts are random.
  void run() {
    for (int attempt = 0;; ++attempt) {
      REQUIRE(attempt < 60);
      if (attempt_ends_training(attempt)) return;
    }
  }

  TempDir folder;
  RunFacts facts;
  std::int64_t epochs = 0;

 private:
  bool attempt_ends_training(int attempt) {
    const int world = static_cast<int>(random_() % case_.max_world) + 1;
    facts.datasets[attempt] = {"data"};
    workers_.clear();
    for (int rank = 0; rank < world; ++rank) {
      ShardOptions options{.equal = equal_, .digest_folder = folder.path(), .whole = whole_, .attempt = attempt};
      workers_.push_back({shard_of(case_, rank, world, options)});
      if (!position_.empty()) REQUIRE(workers_.back().shard->load_state(position_));
    }
    const bool killed = random_() % 2;
    std::int64_t most = attempt < 8 ? random_() % 12 + 1 : 1'000'000;
    while (workers_.front().shard->epoch() < 2) {
      for (auto& each : workers_) {
        auto pass = each.shard->iterate(case_.iterating);
        if (!pass) FAIL(pass.error().message());
        each.pass = *std::move(pass);
      }
      const std::int64_t leave = random_() % 4 ? 1'000'000 : random_() % 4 + 1;
      for (std::int64_t step = 0; step < leave && take_step(); ++step) {
        if (random_() % 3 == 0) report(attempt);
        if (--most < 0) {
          end_attempt(killed);
          return false;
        }
      }
      for (auto& each : workers_) each.pass.reset();
      if (random_() % 2) report(attempt);
    }
    for (int rank = 0; rank < world; ++rank) {
      workers_[static_cast<std::size_t>(rank)].shard->finish();
      facts.finished.emplace(attempt, rank);
    }
    epochs = workers_.front().shard->epoch();
    workers_.clear();
    return true;
  }

  bool take_step() {
    bool more = false;
    for (auto& each : workers_) more = take_one(each);
    return more;
  }

  bool take_one(Worker& worker) {
    auto next = worker.pass->next(std::chrono::seconds(60));
    REQUIRE(next);
    return next->state == Next::State::kBatch;
  }

  void report(int attempt) {
    position_ = workers_.front().shard->position();
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
      const Shard& shard = *workers_[rank].shard;
      const AttemptAndRank who(attempt, static_cast<int>(rank));
      REQUIRE(workers_[rank].shard->position() == position_);
      if (shard.stats().rows > 0) facts.took.insert(who);
      facts.logged[who]["data"] = shard.logged_rows().value();
    }
  }

  // Ranks reach different positions before they exit; a killed process writes nothing more.
  void end_attempt(bool killed) {
    for (auto& each : workers_) {
      for (std::int64_t more = random_() % 3; more > 0; --more) (void)take_one(each);
      if (random_() % 2) (void)each.shard->position();  // a report of this rank only
    }
    std::map<std::string, std::uintmax_t> sizes;
    for (const auto& entry : fs::directory_iterator(folder.path())) sizes[entry.path()] = entry.file_size();
    workers_.clear();
    if (!killed) return;
    for (const auto& [path, size] : sizes) fs::resize_file(path, size);
  }

  Case case_;
  std::mt19937& random_;
  bool equal_;
  bool whole_;  // every rank reads all rows
  Dict position_;
  std::vector<Worker> workers_;
};

bool detected(const fs::path& folder, const RunFacts& facts) {
  const auto verdicts = verify_digests(folder, facts);
  if (!verdicts) return true;
  return std::any_of(verdicts->begin(), verdicts->end(), [](const auto& each) { return !each.problem.empty(); });
}

Case random_run(std::mt19937& random, bool& equal) {
  Case made = tests::random_case(random);
  equal = random() % 4 == 0;
  if (equal) made.iterating.global_batch_size = 12 * (random() % 2 + 1);  // fits every number of ranks
  if (!equal && !made.iterating.drop_last) made.iterating.pad_last = random() % 4 == 0;
  for (auto& rows : made.fragment_rows) rows += made.iterating.drop_last ? 40 : 0;
  return made;
}

using Place = std::pair<std::int64_t, std::int64_t>;

struct Line {
  int attempt = 0;
  std::string kind;
  Place place;  // where it starts
  Dict fields;
  std::string text = {};  // in place of the fields
};

// The logs of a run, to be damaged.
class Logs {
 public:
  explicit Logs(const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename();
      if (!name.ends_with(".jsonl")) {
        others_[name] = read_text(entry.path());
        continue;
      }
      auto& lines = files[std::stoi(name.substr(5))];
      std::map<Place, std::int64_t> epochs;  // by attempt and pass
      std::ifstream file(entry.path());
      for (std::string text; std::getline(file, text);) {
        Line line{0, "", {}, base::parse_json_dict(text).value()};
        line.attempt = static_cast<int>(line.fields["attempt"].as_int());
        line.kind = line.fields["kind"].as_string();
        const Value* pass = line.fields.find("pass");
        const Place key{line.attempt, pass ? pass->as_int() : -1};
        if (line.kind == "pass") {
          epochs[key] = line.fields["epoch"].as_int();
          auto [start, added] = starts_.try_emplace(line.attempt, epochs[key], line.fields["begin"].as_int());
          if (!added) start->second = std::min(start->second, Place(epochs[key], line.fields["begin"].as_int()));
        }
        if (line.kind == "finished") {
          line.place = {line.fields["epoch"].as_int(), line.fields["row"].as_int()};
          starts_.try_emplace(line.attempt, line.place);
        }
        if (pass) line.place = {epochs[key], line.fields[line.kind == "end" ? "at" : "begin"].as_int()};
        lines.push_back(std::move(line));
      }
    }
  }

  void write(const fs::path& folder) const {
    for (const auto& [name, text] : others_) std::ofstream(folder / name) << text;
    for (const auto& [rank, lines] : files) {
      std::ofstream file(folder / ("data." + std::to_string(rank) + ".jsonl"));
      for (const auto& line : lines) file << (line.text.empty() ? base::to_json(line.fields) + "\n" : line.text);
    }
  }

  // A later attempt started before it: a worker that is killed at any moment has fewer of these lines.
  bool done_again(const Line& line) const {
    return std::any_of(starts_.upper_bound(line.attempt), starts_.end(),
                       [&](const auto& later) { return line.place >= later.second; });
  }

  std::map<int, std::vector<Line>> files;  // by rank

 private:
  std::map<int, Place> starts_;  // of the attempts
  std::map<std::string, std::string> others_;
};

// Damages the logs. Returns a description; empty if the damage would have no effect.
using Attack = std::function<std::string(Logs&, std::mt19937&)>;

std::pair<int, std::size_t> drawn_line(const Logs& logs, std::mt19937& random) {
  auto file = std::next(logs.files.begin(), static_cast<std::ptrdiff_t>(random() % logs.files.size()));
  return {file->first, random() % file->second.size()};
}

bool last_of_its_attempt(const std::vector<Line>& lines, std::size_t at) {
  return std::none_of(lines.begin() + static_cast<std::ptrdiff_t>(at) + 1, lines.end(),
                      [&](const Line& line) { return line.attempt == lines[at].attempt; });
}

std::string drop_line(Logs& logs, std::mt19937& random) {
  const auto [rank, at] = drawn_line(logs, random);
  auto& lines = logs.files[rank];
  if (last_of_its_attempt(lines, at) && logs.done_again(lines[at])) return "";
  const std::string kind = lines[at].kind;
  lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(at));
  return "dropped a line " + kind;
}

std::string duplicate_line(Logs& logs, std::mt19937& random) {
  const auto [rank, at] = drawn_line(logs, random);
  auto& lines = logs.files[rank];
  const Line line = lines[at];
  std::size_t to = at + random() % (lines.size() - at) + 1;
  lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(to), line);
  return "duplicated a line " + line.kind;
}

std::string reorder_lines(Logs& logs, std::mt19937& random) {
  const auto [rank, at] = drawn_line(logs, random);
  auto& lines = logs.files[rank];
  const std::size_t other = random() % lines.size();
  if (at == other || lines[at].attempt != lines[other].attempt) return "";
  std::swap(lines[at], lines[other]);
  return "swapped lines " + lines[at].kind + " and " + lines[other].kind;
}

std::string swap_ranks(Logs& logs, std::mt19937& random) {
  const auto [rank, at] = drawn_line(logs, random);
  const auto [other_rank, other] = drawn_line(logs, random);
  Line& a = logs.files[rank][at];
  Line& b = logs.files[other_rank][other];
  if (rank == other_rank || a.fields == b.fields) return "";
  std::swap(a, b);
  return "swapped lines of ranks: " + a.kind + " and " + b.kind;
}

std::string truncate_log(Logs& logs, std::mt19937& random) {
  const auto [rank, at] = drawn_line(logs, random);
  auto& lines = logs.files[rank];
  if (std::all_of(lines.begin() + static_cast<std::ptrdiff_t>(at), lines.end(),
                  [&](const Line& line) { return logs.done_again(line); })) {
    return "";
  }
  lines.resize(at);
  return "truncated after line " + std::to_string(at);
}

std::string shift_line(Logs& logs, std::mt19937& random) {
  const auto [rank, at] = drawn_line(logs, random);
  Line& line = logs.files[rank][at];
  if (line.kind == "finished") return "";
  if (last_of_its_attempt(logs.files[rank], at) && logs.done_again(line) && line.kind == "pass") return "";
  const std::int64_t by = random() % 2 ? 1 : -1 - static_cast<std::int64_t>(random() % 5);
  for (const char* key : {"begin", "end", "at"}) {
    if (const Value* found = line.fields.find(key)) line.fields[key] = found->as_int() + by;
  }
  return "shifted a line " + line.kind;
}

// On all ranks in the same way, like a bug of the sampler.
std::string shift_all(Logs& logs, std::mt19937& random) {
  const std::int64_t by = random() % 7 + 1;
  const int attempt = logs.files.begin()->second[random() % logs.files.begin()->second.size()].attempt;
  bool took = false;
  for (auto& [rank, lines] : logs.files) {
    for (auto& line : lines) {
      if (line.attempt != attempt) continue;
      took = took || line.kind == "rows";
      for (const char* key : {"begin", "end", "at"}) {
        if (const Value* found = line.fields.find(key)) line.fields[key] = found->as_int() + by;
      }
    }
  }
  return took ? "shifted attempt " + std::to_string(attempt) : "";
}

std::string change_number(Logs& logs, std::mt19937& random) {
  const auto [rank, at] = drawn_line(logs, random);
  Line& line = logs.files[rank][at];
  if (line.kind != "rows") return "";
  const char* key = random() % 2 ? "rows" : "digest";
  line.fields[key] = line.fields[key].as_int() ^ (std::int64_t{1} << random() % 8);
  return std::string("changed ") + key;
}

// Swaps the digests of the same stretch of both ranks: every row occurs once, on the wrong rank.
std::string swap_digests(Logs& logs, std::mt19937& random) {
  const auto [rank, at] = drawn_line(logs, random);
  Line& line = logs.files[rank][at];
  if (line.kind != "rows") return "";
  for (auto& [other, lines] : logs.files) {
    for (auto& each : lines) {
      const bool same =
          other != rank && each.kind == "rows" && each.attempt == line.attempt && each.place == line.place;
      if (!same || each.fields["digest"] == line.fields["digest"]) continue;
      std::swap(each.fields["digest"], line.fields["digest"]);
      std::swap(each.fields["rows"], line.fields["rows"]);
      return "swapped what two ranks took";
    }
  }
  return "";
}

std::string drop_rank(Logs& logs, std::mt19937& random) {
  const int rank = drawn_line(logs, random).first;
  const auto& lines = logs.files[rank];
  if (std::all_of(lines.begin(), lines.end(), [&](const Line& line) { return logs.done_again(line); })) return "";
  logs.files.erase(rank);
  return "dropped rank " + std::to_string(rank);
}

std::string drop_attempt(Logs& logs, std::mt19937& random) {
  const auto [rank, at] = drawn_line(logs, random);
  const int attempt = logs.files[rank][at].attempt;
  bool counts = false;
  for (auto& [each, lines] : logs.files) {
    for (const auto& line : lines) counts = counts || (line.attempt == attempt && !logs.done_again(line));
  }
  // An attempt that consumed nothing has nothing to lose.
  bool took = false;
  for (auto& [each, lines] : logs.files) {
    for (const auto& line : lines) {
      took = took || (line.attempt == attempt && line.kind == "rows" && !logs.done_again(line));
    }
  }
  if (!counts || !took) return "";
  for (auto& [each, lines] : logs.files)
    std::erase_if(lines, [&](const Line& line) { return line.attempt == attempt; });
  return "dropped attempt " + std::to_string(attempt);
}

// At any byte: the last line may be half.
std::string cut_file(Logs& logs, std::mt19937& random) {
  const auto [rank, at] = drawn_line(logs, random);
  auto& lines = logs.files[rank];
  const std::string text = base::to_json(lines[at].fields);
  lines.resize(at + 1);
  lines[at].text = text.substr(0, random() % (text.size() - 1) + 1);
  return "cut line " + std::to_string(at);
}

std::string drop_dataset(Logs& logs, std::mt19937&) {
  logs.files.clear();
  return "dropped all logs";
}

std::string other_parameters(Logs& logs, std::mt19937& random) {
  const auto [rank, at] = drawn_line(logs, random);
  const int attempt = logs.files[rank][at].attempt;
  const char* key = std::array{"batch_rows", "virtual_shards", "window_rows", "epoch", "world"}[random() % 5];
  bool took = false;
  for (auto& [each, lines] : logs.files) {
    for (auto& line : lines) {
      if (line.attempt != attempt) continue;
      took = took || line.kind == "rows";
      if (line.kind == "pass") line.fields[key] = line.fields[key].as_int() + 1;
    }
  }
  return took ? std::string("changed ") + key : "";
}

}  // namespace

TEST_CASE("runs with restarts, resizes and abandoned epochs are valid, and every damage to their logs is found") {
  bool whole = false;
  SUBCASE("a dataset that is split") {}
  SUBCASE("a dataset that every rank reads completely") { whole = true; }
  const std::vector<std::pair<std::string, Attack>> attacks{
      {"drop_line", drop_line},      {"duplicate_line", duplicate_line}, {"reorder_lines", reorder_lines},
      {"swap_ranks", swap_ranks},    {"truncate", truncate_log},         {"shift_line", shift_line},
      {"shift_all", shift_all},      {"change_number", change_number},   {"swap_digests", swap_digests},
      {"drop_rank", drop_rank},      {"drop_attempt", drop_attempt},     {"cut_file", cut_file},
      {"drop_dataset", drop_dataset}};
  std::mt19937 random(whole ? 29 : 23);
  std::map<std::string, int> tried;
  int several_attempts = 0;
  for (int trial = 0; trial < 60; ++trial) {
    CAPTURE(trial);
    bool equal = false;
    const Case each = random_run(random, equal);
    LoggedRun run(each, random, equal, whole);
    run.run();
    const auto verdicts = verify_digests(run.folder.path(), run.facts);
    if (!verdicts) FAIL(verdicts.error().message());
    REQUIRE(!verdicts->empty());
    for (const auto& verdict : *verdicts) {
      CAPTURE(verdict.epoch);
      REQUIRE(verdict.problem == "");
      // A rank that a resize has removed does not end its epoch.
      if (!whole) CHECK(verdict.end != EpochVerdict::End::kOpen);
      if (verdict.end == EpochVerdict::End::kOver && !equal && !each.iterating.drop_last) {
        CHECK(verdict.seen == verdict.size);
      }
      several_attempts += verdict.attempts > 1;
    }
    const Logs logs(run.folder.path());
    for (const auto& [name, attack] : attacks) {
      for (int i = 0; i < 6; ++i) {
        Logs damaged = logs;
        const std::string done = attack(damaged, random);
        if (done.empty()) continue;
        ++tried[name];
        TempDir folder;
        damaged.write(folder.path());
        const bool found = detected(folder.path(), run.facts);
        if (!found) {
          for (const auto& [rank, lines] : logs.files) {
            for (const auto& line : lines) MESSAGE(rank << " " << base::to_json(line.fields));
          }
        }
        INFO(name << ": " << done);
        REQUIRE(found);
      }
    }
  }
  CHECK(several_attempts > 20);
  for (const auto& [name, attack] : attacks) {
    CAPTURE(name);
    // Ranks that read the same rows have the same digests.
    if (!whole || name != "swap_digests") CHECK(tried[name] > 50);
  }
}

TEST_CASE("invalid parameters of a line are found") {
  std::mt19937 random(5);
  int tried = 0;
  for (int trial = 0; trial < 30; ++trial) {
    bool equal = false;
    Case each = random_run(random, equal);
    each.ordering.shuffle_rows = true;  // so that a different order is visible
    each.ordering.window_rows.reset();
    for (auto& rows : each.fragment_rows) rows += 30;
    LoggedRun run(each, random, equal);
    run.run();
    const Logs logs(run.folder.path());
    for (int i = 0; i < 10; ++i) {
      Logs damaged = logs;
      const std::string done = other_parameters(damaged, random);
      if (done.empty() || done == "changed window_rows" || done == "changed batch_rows") continue;
      ++tried;
      TempDir folder;
      damaged.write(folder.path());
      INFO(done);
      CHECK(detected(folder.path(), run.facts));
    }
  }
  CHECK(tried > 50);
}

TEST_CASE("a truncated or invalid line is reported with its file") {
  const Case each{.fragment_rows = {40}, .ordering = {}, .iterating = {.batch_size = 8}};
  TempDir folder;
  (void)tests::batches_of(**shard_of(each, 0, 1, {.digest_folder = folder.path()})->iterate(each.iterating));
  const std::string log = folder / "data.0.jsonl";
  const std::string text = read_text(log);
  CHECK(verify_digests(folder.path())->front().problem == "");
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"virtual_shards\":1", "\"virtual_shards\":1000000000000000000"},
           {"\"virtual_shards\":1", "\"virtual_shards\":41"},
           {"\"window_rows\":0", "\"window_rows\":99999999999"},
           {"\"batch_rows\":8", "\"batch_rows\":0"},
           {"\"begin\":0", "\"begin\":-5"},
           {"\"end\":40", "\"end\":4000000000000"},
           {"\"kind\":\"end\"", "\"kind\":\"und\""},
           {"\"fragments\":\"", "\"fragments\":\"../../"}}) {
    std::string damaged = text;
    CAPTURE(to);
    REQUIRE(damaged.find(from) != std::string::npos);
    damaged.replace(damaged.find(from), from.size(), to);
    std::ofstream(log) << damaged;
    CHECK(detected(folder.path(), {}));
  }
  std::ofstream(log) << text << "half a li";
  const auto refused = verify_digests(folder.path());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message().find("data.0.jsonl, line 4") != std::string::npos);
}

namespace {

// Two ranks over 100 rows; the subcases define their actions.
struct Pair {
  explicit Pair(int attempt, const Dict& position = {}) { begin(attempt, position); }

  void begin(int attempt, const Dict& position) {
    for (int rank = 0; rank < 2; ++rank) {
      workers.push_back({shard_of(shape, rank, 2, {.digest_folder = folder->path(), .attempt = attempt})});
      if (!position.empty()) REQUIRE(workers.back().shard->load_state(position));
    }
  }

  void iterate(const IterBatchesOptions& options) {
    for (auto& each : workers) each.pass = value_of(each.shard->iterate(options));
  }
  static std::unique_ptr<Pass> value_of(base::Result<std::unique_ptr<Pass>> made) {
    if (!made) FAIL(made.error().message());
    return *std::move(made);
  }
  void take(int steps) {
    for (auto& each : workers) take(each, steps);
  }
  static void take(Worker& worker, int steps) {
    for (int i = 0; i < steps; ++i) REQUIRE(worker.pass->next(std::chrono::seconds(60)));
  }
  Dict report() {
    (void)workers[1].shard->position();
    return workers[0].shard->position();
  }
  void restart(int attempt, const Dict& position) {
    workers.clear();
    begin(attempt, position);
  }
  std::string finish() {
    for (auto& each : workers) {
      each.pass.reset();
      each.shard->finish();
    }
    workers.clear();
    return problem();
  }
  std::string problem() const {
    const auto verdicts = verify_digests(folder->path());
    if (!verdicts) FAIL(verdicts.error().message());
    for (const auto& each : *verdicts) {
      if (!each.problem.empty()) return each.problem;
    }
    return "";
  }

  Case shape{.fragment_rows = {40, 60}, .ordering = {.virtual_shards = 2, .seed = 3}, .iterating = {}, .max_world = 2};
  std::unique_ptr<TempDir> folder = std::make_unique<TempDir>();
  std::vector<Worker> workers;
};

bool contains(const std::string& text, const std::string& part) {
  CAPTURE(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

constexpr IterBatchesOptions kTens{.global_batch_size = 10};

}  // namespace

TEST_CASE("lost, repeated and reordered rows are found") {
  SUBCASE("an unchanged run is valid") {
    Pair run(0);
    run.iterate(kTens);
    run.take(11);
    CHECK(run.finish() == "");
  }
  SUBCASE("a rank that skips a batch") {
    Pair run(0);
    run.iterate(kTens);
    run.take(2);
    Dict state = run.workers[1].shard->state();
    state["rows"] = 30;
    REQUIRE(run.workers[1].shard->load_state(state));
    run.workers[1].pass = Pair::value_of(run.workers[1].shard->iterate(kTens));
    run.take(11);
    CHECK(contains(run.finish(), "rank 0"));
  }
  SUBCASE("all ranks skip a batch") {
    Pair run(0);
    run.iterate(kTens);
    run.take(2);
    Dict state = run.report();
    state["rows"] = 30;
    for (auto& each : run.workers) REQUIRE(each.shard->load_state(state));
    run.iterate(kTens);
    run.take(11);
    CHECK(contains(run.finish(), "resumed at row 30, but row 20 was next"));
  }
  SUBCASE("all ranks repeat a batch") {
    Pair run(0);
    run.iterate(kTens);
    run.take(1);
    const Dict state = run.report();
    run.take(1);
    for (auto& each : run.workers) REQUIRE(each.shard->load_state(state));
    run.iterate(kTens);
    run.take(11);
    CHECK(contains(run.finish(), "resumed at row 10, but row 20 was next"));
  }
  SUBCASE("a restart that skips rows") {
    Pair run(0);
    run.iterate(kTens);
    run.take(2);
    Dict state = run.report();
    state["rows"] = 50;
    run.restart(1, state);
    run.iterate(kTens);
    run.take(11);
    CHECK(contains(run.finish(), "attempt 1 resumed at row 50, but row 20 was next"));
  }
  SUBCASE("a restart that skips an epoch") {
    Pair run(0);
    run.iterate(kTens);
    run.take(2);
    Dict state = run.report();
    state["rows"] = 0;
    state["epoch"] = 2;
    run.restart(1, state);
    run.iterate(kTens);
    run.take(11);
    CHECK(contains(run.finish(), "of epoch 2 after row 20 of epoch 0"));
  }
  SUBCASE("a restart in a different order") {
    for (const char* key : {"seed", "window_rows", "virtual_shards"}) {
      CAPTURE(key);
      Pair run(0);
      run.iterate({.global_batch_size = 10, .local_shuffle_buffer_size = 100, .local_shuffle_seed = 1});
      run.take(5);
      Dict state = run.report();
      state[key] = state[key].as_int() - 1;
      run.restart(1, state);
      run.iterate({.global_batch_size = 10, .local_shuffle_buffer_size = 100, .local_shuffle_seed = 1});
      run.take(11);
      const std::string problem = run.finish();
      CHECK(contains(problem, "attempt 1 resumed in a different order"));
      CHECK(contains(problem, "consumed twice, and as many not at all"));
    }
  }
  SUBCASE("a local shuffle that changes with the restart has no effect") {
    Pair run(0);
    run.iterate({.global_batch_size = 10, .local_shuffle_buffer_size = 100, .local_shuffle_seed = 1});
    run.take(5);
    run.restart(1, run.report());
    run.iterate({.global_batch_size = 10, .local_shuffle_buffer_size = 40, .local_shuffle_seed = 2});
    run.take(11);
    CHECK(run.finish() == "");
  }
  SUBCASE("ranks with each other's rows") {
    Pair run(0);
    run.workers.clear();
    for (int rank = 0; rank < 2; ++rank) {
      auto source = std::make_shared<tests::RowSource>(run.shape.fragment_rows, 7);
      Table table{source->fragments(), source, {}};
      table.layout = lay_out(table.fragments, run.shape.ordering);
      ShardOptions options{.rank = 1 - rank, .world = 2, .max_world = 2, .digest_folder = run.folder->path()};
      options.log_rank = rank;
      options.log_world = 2;
      run.workers.push_back({*Shard::make(std::move(table), options)});
    }
    run.iterate(kTens);
    run.take(11);
    CHECK(contains(run.finish(), "rank 0 consumed the wrong rows, or in the wrong order"));
  }
  SUBCASE("ranks with different orders") {
    Pair run(0);
    for (int rank = 0; rank < 2; ++rank) {
      auto& worker = run.workers[static_cast<std::size_t>(rank)];
      worker.pass = Pair::value_of(worker.shard->iterate(
          {.global_batch_size = 10, .local_shuffle_buffer_size = 50, .local_shuffle_seed = rank}));
    }
    run.take(11);
    CHECK(contains(run.finish(), "has a different order"));
  }
  SUBCASE("ranks with batches of different sizes") {
    Pair run(0);
    run.workers[0].pass = Pair::value_of(run.workers[0].shard->iterate(kTens));
    run.workers[1].pass = Pair::value_of(run.workers[1].shard->iterate({.global_batch_size = 20}));
    run.take(11);
    CHECK(contains(run.finish(), "split the epoch differently"));
  }
  SUBCASE("a rank that leaves the epoch a batch early") {
    Pair run(0);
    run.iterate(kTens);
    run.take(run.workers[0], 11);
    run.take(run.workers[1], 9);
    CHECK(contains(run.finish(), "rank 1 stopped at row 90 and rank 0 at row 100"));
  }
  SUBCASE("a rank that does not take part in an epoch") {
    Pair run(0);
    run.iterate(kTens);
    run.take(11);
    run.workers[0].pass = Pair::value_of(run.workers[0].shard->iterate(kTens));
    run.take(run.workers[0], 11);
    CHECK(contains(run.finish(), "rank 1 did not take part"));
  }
}

}  // namespace digest_verify_test
