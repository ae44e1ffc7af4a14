#include "control/collective_rendezvous.h"

#include <doctest/doctest.h>

namespace collective_rendezvous_test {

using namespace trireme;
using trireme::control::CollectiveRendezvous;

namespace {

struct Answers {
  std::map<int, std::string> left;    // rank -> data
  std::map<int, std::string> failed;  // rank -> why

  CollectiveRendezvous::Answer of(int rank) {
    return [this, rank](const base::Result<std::string>& data) {
      if (data) {
        left[rank] = *data;
      } else {
        failed[rank] = data.error().message();
      }
    };
  }
};

}  // namespace

TEST_CASE("ranks leave together, with the data of rank 0") {
  CollectiveRendezvous collectives(3);
  Answers answers;
  collectives.come(2, 0, "broadcast", "ignored", answers.of(2));
  collectives.come(0, 0, "broadcast", "data", answers.of(0));
  CHECK(answers.left.empty());
  collectives.come(1, 0, "broadcast", "", answers.of(1));
  CHECK(answers.left == std::map<int, std::string>{{0, "data"}, {1, "data"}, {2, "data"}});
  CHECK(answers.failed.empty());
}

TEST_CASE("collectives with different numbers are independent") {
  CollectiveRendezvous collectives(2);
  Answers first;
  Answers second;
  collectives.come(0, 0, "barrier", "", first.of(0));
  collectives.come(1, 1, "barrier", "", second.of(1));
  CHECK(first.left.empty());
  collectives.come(0, 1, "barrier", "", second.of(0));
  CHECK(second.left.size() == 2);
  CHECK(first.left.empty());
  collectives.come(1, 0, "barrier", "", first.of(1));
  CHECK(first.left.size() == 2);
}

TEST_CASE("a single rank completes a collective alone") {
  CollectiveRendezvous collectives(1);
  Answers answers;
  collectives.come(0, 0, "broadcast", "x", answers.of(0));
  CHECK(answers.left[0] == "x");
}

TEST_CASE("ranks in different calls get an error") {
  CollectiveRendezvous collectives(2);
  Answers answers;
  collectives.come(0, 4, "barrier", "", answers.of(0));
  collectives.come(1, 4, "broadcast", "", answers.of(1));
  CHECK(answers.left.empty());
  CHECK(answers.failed[0] == "rank 1 called broadcast while another rank called barrier");
  CHECK(answers.failed[1] == answers.failed[0]);
}

TEST_CASE("no rank waits for a rank that has finished") {
  CollectiveRendezvous collectives(3);
  Answers answers;
  collectives.come(0, 0, "barrier", "", answers.of(0));
  collectives.come(1, 1, "broadcast", "", answers.of(1));
  collectives.finished(2);
  CHECK(answers.failed[0] == "barrier 0 cannot complete: rank 2 has finished its training function without calling it");
  CHECK(answers.failed[1] ==
        "broadcast 1 cannot complete: rank 2 has finished its training function without calling it");
  Answers later;
  collectives.come(0, 2, "barrier", "", later.of(0));
  CHECK(later.failed[0] == "barrier 2 cannot complete: rank 2 has already finished its training function");
  collectives.clear(1);
  Answers fresh;
  collectives.come(0, 0, "barrier", "", fresh.of(0));
  CHECK(fresh.left.size() == 1);
}

TEST_CASE("waiters of the previous attempt are not answered in this one") {
  CollectiveRendezvous collectives(2);
  Answers before;
  Answers now;
  collectives.come(0, 0, "barrier", "", before.of(0));
  collectives.clear(2);
  collectives.come(0, 0, "barrier", "", now.of(0));
  collectives.come(1, 0, "barrier", "", now.of(1));
  CHECK(now.left.size() == 2);
  CHECK(before.left.empty());
  CHECK(before.failed.empty());
}

TEST_CASE("an answer may enter the next collective") {
  CollectiveRendezvous collectives(1);
  Answers answers;
  collectives.come(0, 0, "barrier", "", [&](const base::Result<std::string>&) {
    collectives.come(0, 1, "broadcast", "again", answers.of(0));
  });
  CHECK(answers.left[0] == "again");
}

TEST_CASE("the waiting ranks are known") {
  CollectiveRendezvous collectives(2);
  Answers answers;
  collectives.come(0, 0, "barrier", "", answers.of(0));
  CHECK(collectives.waits(0));
  CHECK_FALSE(collectives.waits(1));
  collectives.come(1, 0, "barrier", "", answers.of(1));
  CHECK_FALSE(collectives.waits(0));
}

}  // namespace collective_rendezvous_test
