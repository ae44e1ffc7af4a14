#include "control/hang_report.h"

#include <doctest/doctest.h>

namespace hang_report_test {

using namespace trireme::control;

namespace {

RankPlace in(int rank, std::int64_t reports, const std::string& where, double silent_s = 30.0) {
  return {.rank = rank,
          .reports = reports,
          .silent_s = silent_s,
          .answered = true,
          .where = where,
          .text = "Thread " + std::to_string(100 + rank) + "\n",
          .process = ""};
}

RankPlace silent(int rank, std::int64_t reports, const std::string& process) {
  return {.rank = rank,
          .reports = reports,
          .silent_s = 30.0,
          .answered = false,
          .where = "",
          .text = "",
          .process = process};
}

RankPlace returned(int rank, std::int64_t reports) {
  RankPlace place = in(rank, reports, "_worker.py:250 in run");
  place.returned = true;
  return place;
}

const std::string kReduce = "train.py:41 in step (in torch/distributed/distributed_c10d.py:2806 all_reduce)";

}  // namespace

TEST_CASE("one line shows where ranks wait, and for which ranks") {
  struct Row {
    std::vector<RankPlace> ranks;
    std::string summary;
  };
  for (const Row& row : {
           Row{{}, "no worker is running"},
           Row{{in(0, 3, "train.py:9 in f")}, "no report for 30 s: rank 0 is in train.py:9 in f"},
           Row{{in(0, 3, kReduce), in(1, 3, kReduce)}, "no report for 30 s: all 2 ranks are in " + kReduce},
           Row{{in(0, 5, kReduce), in(1, 5, kReduce), in(2, 4, "data.py:12 in load"), in(3, 5, kReduce)},
               "no report for 30 s: ranks 0-1,3 wait in " + kReduce +
                   ", rank 2 is behind by 1 report: in data.py:12 in load"},
           Row{{in(0, 5, kReduce), in(1, 5, "data.py:12 in load"), in(2, 5, kReduce)},
               "no report for 30 s: ranks 0,2 are in " + kReduce + ", rank 1 is in data.py:12 in load"},
           Row{{in(0, 5, kReduce), silent(1, 5, "stopped by a signal, 9 threads")},
               "no report for 30 s: rank 0 is in " + kReduce +
                   ", rank 1 does not answer: stopped by a signal, 9 threads"},
           Row{{in(0, 5, kReduce), silent(1, 3, ""), silent(2, 3, "")},
               "no report for 30 s: rank 0 waits in " + kReduce +
                   ", ranks 1-2 are behind by 2 reports and do not answer"},
           Row{{silent(0, 5, "gone"), silent(1, 5, "gone")}, "no report for 30 s: all 2 ranks do not answer: gone"},
           Row{{in(0, 5, kReduce), returned(1, 5)},
               "no report for 30 s: rank 0 is in " + kReduce + ", rank 1 has returned from the training function"},
           Row{{in(0, 5, kReduce), returned(1, 3), returned(2, 3)},
               "no report for 30 s: rank 0 waits in " + kReduce +
                   ", ranks 1-2 have returned from the training function, 2 reports behind the others"},
           Row{{in(0, 0, "train.py:3 in f", 200), in(1, 0, "", 190)},
               "no first report for 3 min 10 s: rank 0 is in train.py:3 in f, rank 1 is in an unknown location"},
       }) {
    CHECK(hang_report(row.ranks).summary == row.summary);
  }
}

TEST_CASE("a gang whose ranks are all in different places still yields one line, with the rank that is behind") {
  std::vector<RankPlace> ranks;
  for (int rank = 0; rank < 40; ++rank) ranks.push_back(in(rank, rank == 17 ? 6 : 7, "f.py:" + std::to_string(rank)));
  const std::string summary = hang_report(ranks).summary;
  CHECK(summary.size() < 300);
  CHECK(summary.find("rank 17 is behind by 1 report: in f.py:17") != std::string::npos);
  CHECK(summary.ends_with(", 34 other ranks elsewhere"));
}

TEST_CASE("the file has every rank in order") {
  const auto report = hang_report({in(1, 1, "b.py:2 in g"), silent(2, 0, "ended"), in(0, 2, "a.py:1 in f", 31.2)});
  CHECK(report.text == report.summary +
                           "\n\n==== rank 0: 2 reports, the last 31 s ago; in a.py:1 in f\nThread 100\n"
                           "\n==== rank 1: 1 report, the last 30 s ago; in b.py:2 in g\nThread 101\n"
                           "\n==== rank 2: no report in 30 s; did not answer: ended\n");
}

}  // namespace hang_report_test
