#include "control/commit_book.h"

#include <doctest/doctest.h>

#include "base/check.h"

namespace commit_book_test {

using namespace trireme;
using trireme::control::CommitBook;
using trireme::control::ReadyCheckpoint;

namespace {

std::string name_of(std::int64_t index) { return "checkpoint_" + std::to_string(index); }

// A report with a checkpoint and its upload.
void add(CommitBook& book, int rank, std::int64_t index) {
  book.report(rank, index, {{{"rank", rank}, {"index", index}}, name_of(index)});
  book.uploaded(rank, index, {});
}

List files_of(int rank) { return {Value(List{"rank_" + std::to_string(rank), 7, "xxh3"})}; }

std::vector<std::int64_t> indexes(const std::vector<ReadyCheckpoint>& ready) {
  std::vector<std::int64_t> all;
  for (const auto& each : ready) all.push_back(each.index);
  return all;
}

using Indexes = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("a checkpoint is ready when every rank has reported and every upload is done") {
  CommitBook book(2, 0);
  book.report(0, 0, {{{"loss", 1}}, "first"});
  CHECK(book.take_ready().empty());
  CHECK(book.waiting() == std::map<std::int64_t, std::vector<int>>{{0, {1}}});
  book.uploaded(0, 0, files_of(0));
  CHECK(book.take_ready().empty());
  book.report(1, 0, {{{"loss", 2}}, "first"});
  CHECK(book.take_ready().empty());
  CHECK(book.waiting() == std::map<std::int64_t, std::vector<int>>{{0, {}}});
  CHECK_FALSE(book.waits_below(0));
  CHECK(book.waits_below(1));
  CHECK_FALSE(book.taken(0));
  book.uploaded(1, 0, files_of(1));
  auto ready = book.take_ready();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0] == ReadyCheckpoint{0, "first", {{"loss", 1}}, {}, {}, {{0, files_of(0)}, {1, files_of(1)}}, {}});
  CHECK(book.take_ready().empty());
  CHECK(book.waiting().empty());
  CHECK_FALSE(book.waits_below(1));
  CHECK(book.taken(0));
  CHECK_FALSE(book.taken(1));
}

TEST_CASE("only durable checkpoints are resumed from") {
  CommitBook book(1, 0);
  for (int i = 0; i < 3; ++i) add(book, 0, i);
  CHECK(book.take_ready().size() == 3);
  CHECK(book.resume_at() == 0);
  book.committed(1, {{"data", 1}});
  CHECK(book.resume_at() == 2);
  book.committed(0, {{"data", 0}});
  CHECK(book.resume_at() == 2);
  CHECK(book.first_positions().empty());
  CHECK(book.next_attempt(1).first_positions() == Dict{{"data", 1}});
  CHECK(book.next_attempt(1).next_report(0) == 2);
}

TEST_CASE("the validation of a checkpoint is that of the lowest rank that requests one, in any order of arrival") {
  CommitBook book(3, 0);
  book.report(2, 0, {{}, name_of(0), Dict{{"n", 2}}});
  book.report(1, 0, {{}, name_of(0), Dict{{"n", 1}}});
  book.report(0, 0, {{}, name_of(0)});
  for (int rank : {0, 1, 2}) book.uploaded(rank, 0, {});
  CHECK(book.take_ready()[0].validation == Value(Dict{{"n", 1}}));
  for (int rank : {0, 1, 2}) add(book, rank, 1);
  CHECK(book.take_ready()[0].validation.is_null());
}

TEST_CASE("ranks without files only have to report") {
  CommitBook book(3, 0);
  book.report(2, 0, {{}, std::nullopt});
  add(book, 0, 0);
  CHECK(book.take_ready().empty());
  book.report(1, 0, {{}, std::nullopt});
  CHECK(indexes(book.take_ready()) == Indexes{0});
}

TEST_CASE("reports without a checkpoint commit nothing") {
  CommitBook book(2, 0);
  for (int i = 0; i < 3; ++i) book.report(0, i, {{{"step", i}}, std::nullopt});
  CHECK(book.take_ready().empty());
  CHECK(book.waiting().empty());
  CHECK(book.next_report(0) == 3);
  CHECK(book.next_report(1) == 0);
  CHECK(book.last_metrics() == Metrics{{"step", 2}});
  CHECK(book.resume_at() == 0);
}

TEST_CASE("checkpoints are ready in the order of their reports") {
  CommitBook book(2, 0);
  book.report(0, 0, {{}, name_of(0)});
  book.report(1, 0, {{}, name_of(0)});
  add(book, 0, 1);
  add(book, 1, 1);
  CHECK(book.take_ready().empty());  // 1 is complete, 0 is not
  book.uploaded(1, 0, {});
  CHECK(book.take_ready().empty());
  book.uploaded(0, 0, {});
  CHECK(indexes(book.take_ready()) == Indexes{0, 1});
}

TEST_CASE("the metrics of a checkpoint are those of the lowest rank, in any order of arrival") {
  CommitBook book(3, 0);
  add(book, 2, 0);
  add(book, 1, 0);
  add(book, 0, 0);
  CHECK(book.take_ready()[0].metrics["rank"] == Value(0));
  // Rank 0 reports without a checkpoint before another one makes it a checkpoint.
  book.report(0, 1, {{{"rank", 0}}, std::nullopt});
  add(book, 2, 1);
  book.report(1, 1, {{{"rank", 1}}, std::nullopt});
  CHECK(book.take_ready()[0].metrics["rank"] == Value(0));
}

TEST_CASE("a rank that has finished does not block the others") {
  CommitBook book(2, 0);
  add(book, 0, 0);
  CHECK(book.take_ready().empty());
  book.finished(1);
  book.finished(1);
  auto ready = book.take_ready();
  CHECK(indexes(ready) == Indexes{0});
  CHECK(ready[0].missing.empty());
  add(book, 0, 1);
  CHECK(indexes(book.take_ready()) == Indexes{1});
}

TEST_CASE("a report of a finished rank does not count for another rank") {
  CommitBook book(3, 0);
  book.finished(2);
  add(book, 0, 0);
  add(book, 2, 0);
  CHECK(book.take_ready().empty());
  add(book, 1, 0);
  CHECK(indexes(book.take_ready()) == Indexes{0});
}

TEST_CASE("a rank with a late first report is waited for") {
  CommitBook book(2, 0);
  add(book, 0, 0);
  CHECK_FALSE(book.held_up_by_silent_ranks());
  add(book, 0, 1);
  CHECK(book.held_up_by_silent_ranks());
  add(book, 1, 0);
  CHECK_FALSE(book.held_up_by_silent_ranks());
  book.give_up_on_silent_ranks();
  CHECK(indexes(book.take_ready()) == Indexes{0});
  add(book, 1, 1);
  auto ready = book.take_ready();
  CHECK(indexes(ready) == Indexes{1});
  CHECK(ready[0].missing.empty());
}

TEST_CASE("a rank that finishes without a report does not block the others") {
  CommitBook book(2, 0);
  add(book, 0, 0);
  add(book, 0, 1);
  book.finished(1);
  CHECK_FALSE(book.held_up_by_silent_ranks());
  CHECK(indexes(book.take_ready()) == Indexes{0, 1});
}

TEST_CASE("a rank that never reports is given up on after two checkpoints") {
  CommitBook book(3, 0);
  add(book, 0, 0);
  add(book, 1, 0);
  CHECK(book.take_ready().empty());
  add(book, 0, 1);
  CHECK(book.take_ready().empty());
  CHECK(book.held_up_by_silent_ranks());
  book.give_up_on_silent_ranks();
  auto ready = book.take_ready();
  CHECK(indexes(ready) == Indexes{0});
  CHECK(ready[0].missing == std::vector<int>{2});
  // Rank 1 has already reported, so it is waited for.
  CHECK(book.take_ready().empty());
  add(book, 1, 1);
  CHECK(indexes(book.take_ready()) == Indexes{1});
  // When it reports again, its part of a committed checkpoint is too late; a report without files is fine.
  CHECK(book.taken(0));
  book.report(2, 0, {{}, std::nullopt});
  book.report(2, 1, {{}, std::nullopt});
  add(book, 0, 2);
  add(book, 2, 2);
  CHECK(book.take_ready().empty());
  add(book, 1, 2);
  ready = book.take_ready();
  CHECK(indexes(ready) == Indexes{2});
  CHECK(ready[0].missing.empty());
}

TEST_CASE("a slow rank is waited for, however far ahead the others are") {
  CommitBook book(2, 0);
  add(book, 0, 0);
  add(book, 1, 0);
  CHECK(indexes(book.take_ready()) == Indexes{0});
  for (int i = 1; i < 10; ++i) add(book, 0, i);
  CHECK(book.take_ready().empty());
  CHECK(book.waiting().size() == 9);
  for (int i = 1; i < 10; ++i) add(book, 1, i);
  CHECK(book.take_ready().size() == 9);
}

TEST_CASE("the next attempt continues counting from the newest checkpoint") {
  CommitBook book(2, 5);
  CHECK(book.next_report(1) == 5);
  add(book, 0, 5);
  add(book, 1, 5);
  CHECK(indexes(book.take_ready()) == Indexes{5});
  book.committed(5, {});
  book.report(0, 6, {{{"step", 6}}, name_of(6)});
  book.report(1, 6, {{}, std::nullopt});
  CommitBook next = book.next_attempt(4);
  CHECK(next.resume_at() == 6);
  for (int rank = 0; rank < 4; ++rank) CHECK(next.next_report(rank) == 6);
  CHECK(next.waiting().empty());
  CHECK(next.last_metrics() == Metrics{{"step", 6}});
  next.uploaded(0, 6, {});  // from the previous attempt: ignored
  CHECK(next.take_ready().empty());
  // The old metrics are not used for the new report 6.
  next.report(1, 6, {{{"rank", 1}}, name_of(6)});
  for (int rank : {2, 3}) next.report(rank, 6, {{}, std::nullopt});
  next.finished(0);
  next.uploaded(1, 6, {});
  CHECK(next.take_ready()[0].metrics == Metrics{{"rank", 1}});
}

TEST_CASE("positions are those of the lowest rank that has any") {
  CommitBook book(3, 0);
  book.report(2, 0, {{}, "first", {}, {{"loader/0", 2}}});
  book.report(1, 0, {{}, "first", {}, {{"loader/0", 1}}});
  book.report(0, 0, {{}, std::nullopt});
  book.uploaded(1, 0, {});
  book.uploaded(2, 0, {});
  auto ready = book.take_ready();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].positions == Dict{{"loader/0", 1}});
}

TEST_CASE("a position that no rank has restored is the one that the attempt started with") {
  const Dict stored{{"data/train", 7}, {"data/eval", 2}, {"loader/0", 1}};
  const Value untouched;
  struct Row {
    const char* what;
    std::map<int, Dict> reported;
    Dict expected;
  };
  for (const Row& row : {
           Row{"nobody has", {{0, {{"data/train", untouched}}}, {1, {{"data/train", untouched}}}}, {{"data/train", 7}}},
           Row{"rank 0 has one of two",
               {{0, {{"data/train", 9}, {"data/eval", untouched}}}},
               {{"data/train", 9}, {"data/eval", 2}}},
           Row{"only a higher rank has",
               {{0, {{"data/train", untouched}}}, {1, {{"data/train", 9}}}, {2, {{"data/train", 8}}}},
               {{"data/train", 9}}},
           Row{"each rank another one",
               {{0, {{"data/train", 9}, {"data/eval", untouched}}}, {1, {{"data/train", untouched}, {"data/eval", 3}}}},
               {{"data/train", 9}, {"data/eval", 3}}},
           // The lowest rank that has read data represents all ranks: a position that it no longer has is dropped.
           Row{"taken up and gone since", {{0, {{"data/train", 9}}}, {1, {{"loader/0", 5}}}}, {{"data/train", 9}}},
           Row{"not a name of that checkpoint", {{0, {{"loader/4", untouched}}}}, {}},
       }) {
    CAPTURE(row.what);
    // In both orders of arrival.
    for (const bool upwards : {true, false}) {
      CommitBook book(3, 0, stored);
      for (int i = 0; i < 3; ++i) {
        const int rank = upwards ? i : 2 - i;
        const auto found = row.reported.find(rank);
        book.report(rank, 0, {{}, name_of(0), {}, found == row.reported.end() ? Dict() : found->second});
        book.uploaded(rank, 0, {});
      }
      const auto ready = book.take_ready();
      REQUIRE(ready.size() == 1);
      Dict positions = ready[0].positions;
      CHECK(positions.size() == row.expected.size());
      for (const auto& [name, position] : row.expected) CHECK(positions[name] == position);
    }
  }
}

TEST_CASE("a rank that has reported is never left out, wherever it stops") {
  // Rank 1 stops after `reports` reports and `stored` stored parts; rank 0 continues.
  struct Row {
    const char* what;
    int reports;
    int stored;
    Indexes committed;
    std::vector<std::string> waiting;
  };
  for (const Row& row : {
           Row{"before its first report", 0, 0, {}, {"checkpoint_0", "checkpoint_1", "checkpoint_2"}},
           Row{"before its first part is stored", 1, 0, {}, {"checkpoint_0", "checkpoint_1", "checkpoint_2"}},
           Row{"with a part stored", 1, 1, {0}, {"checkpoint_1", "checkpoint_2"}},
           Row{"with its second part on the way", 2, 1, {0}, {"checkpoint_1", "checkpoint_2"}},
           Row{"with everything stored", 3, 3, {0, 1, 2}, {}},
       }) {
    CAPTURE(row.what);
    CommitBook book(2, 0);
    for (int i = 0; i < row.reports; ++i) book.report(1, i, {{}, name_of(i)});
    for (int i = 0; i < row.stored; ++i) book.uploaded(1, i, {});
    for (int i = 0; i < 3; ++i) add(book, 0, i);
    CHECK(indexes(book.take_ready()) == row.committed);
    CHECK(book.waiting_for(1) == row.waiting);
    CHECK(book.waiting_for(0).empty());
    // Only one that has never reported may be given up on.
    book.give_up_on_silent_ranks();
    CHECK(indexes(book.take_ready()) == (row.reports == 0 ? Indexes{0, 1, 2} : Indexes{}));
  }
}

TEST_CASE("a rank that was given up on and reports after all is waited for again") {
  CommitBook book(2, 0);
  for (int i = 0; i < 3; ++i) book.report(0, i, {{}, name_of(i)});
  book.uploaded(0, 0, {});
  book.give_up_on_silent_ranks();
  CHECK(indexes(book.take_ready()) == Indexes{0});
  book.report(1, 0, {{}, std::nullopt});
  book.uploaded(0, 1, {});
  book.uploaded(0, 2, {});
  CHECK(book.take_ready().empty());
  CHECK(book.waiting() == std::map<std::int64_t, std::vector<int>>{{1, {1}}, {2, {1}}});
  add(book, 1, 1);
  auto ready = book.take_ready();
  CHECK(indexes(ready) == Indexes{1});
  CHECK(ready[0].missing.empty());
  add(book, 0, 3);
  add(book, 1, 2);
  CHECK(indexes(book.take_ready()) == Indexes{2});
  book.finished(1);
  CHECK(indexes(book.take_ready()) == Indexes{3});
}

TEST_CASE("a thread that a silent rank left behind does not undo its end") {
  CommitBook book(2, 0);
  for (int i = 0; i < 2; ++i) add(book, 0, i);
  book.give_up_on_silent_ranks();
  CHECK(book.take_ready().size() == 2);
  book.finished(1);
  add(book, 0, 2);
  book.report(1, 0, {{}, std::nullopt});
  CHECK(indexes(book.take_ready()) == Indexes{2});
}

TEST_CASE("a report out of order is a bug") {
  CommitBook book(1, 0);
  CHECK_THROWS_AS(book.report(0, 1, {{}, std::nullopt}), base::BrokenInvariant);
  book.report(0, 0, {{}, std::nullopt});
  CHECK_THROWS_AS(book.report(0, 0, {{}, std::nullopt}), base::BrokenInvariant);
}

TEST_CASE("the result of a validation belongs to the report of its checkpoint") {
  CommitBook book(1, 0);
  book.report(0, 0, {{{"step", 0}}, "c0", {}, {}});
  book.validated(0, {{"score", 5}});
  CHECK(*book.last_metrics() == Metrics{{"step", 0}, {"score", 5}});
  book.report(0, 1, {{{"step", 1}}, "c1", {}, {}});
  book.validated(0, {{"score", 6}});
  CHECK(*book.last_metrics() == Metrics{{"step", 1}});
  // It may take longer than the attempt.
  CommitBook next = book.next_attempt(2);
  next.validated(1, {{"score", 7}});
  CHECK(*next.last_metrics() == Metrics{{"step", 1}, {"score", 7}});
}

}  // namespace commit_book_test
