#include "engine/capacity.h"

#include <csignal>
#include <limits>

#include "engine/local_engine.h"
#include "unit/engine/testing.h"

namespace capacity_test {

using namespace trireme;
using namespace trireme::engine;
using namespace trireme::engine::testing;
using namespace std::chrono_literals;

namespace {

NodeInfo node(double cpus, int gpus = 0, bool declared = true) {
  NodeInfo made;
  made.total["CPU"] = cpus;
  if (gpus > 0) made.total["GPU"] = gpus;
  for (int i = 0; i < gpus; ++i) made.gpus.push_back({.id = std::to_string(i)});
  made.cpus_declared = declared;
  return made;
}

Holding holding(const std::string& run, double cpus, std::vector<int> gpus = {}) {
  Holding made{.pid = 7, .run_name = run, .resources = {{"CPU", cpus}}, .gpus = {}};
  if (!gpus.empty()) made.resources["GPU"] = static_cast<double>(gpus.size());
  for (const int index : gpus) made.gpus.push_back({.device = std::to_string(index), .share = 1.0});
  return made;
}

LocalEngineOptions options(const TempDir& folder, std::optional<double> cpus) {
  return {.machine = {.num_cpus = cpus, .num_gpus = 0, .resources = {}, .host = "here", .state_dir = folder / "state"},
          .python = {}};
}

GangRequest gang(int workers, const std::string& name = "run", bool optional = false) {
  GangRequest request;
  request.run_name = name;
  request.bundles.assign(static_cast<std::size_t>(workers), {{"CPU", 1}});
  request.optional = optional;
  return request;
}

GangId reserve(LocalEngine& engine, EventBook& book, const GangRequest& request) {
  const GangId id = engine.reserve(request, book.handler());
  book.next<Reserved>();
  return id;
}

double free_cpus(const LocalEngine& engine) { return engine.nodes().front().available.at("CPU"); }

}  // namespace

TEST_CASE("lower capacity: the newest optional claims that no longer fit are reclaimed") {
  const std::vector<Claim> own = {
      {holding("a", 2), false}, {holding("a", 1), true}, {holding("b", 2), true}, {holding("a", 1), true}};
  const std::vector<Holding> others = {holding("z", 1)};
  struct Row {
    double cpus;
    std::vector<std::size_t> too_much;
  };
  for (const auto& [cpus, too_much] :
       std::vector<Row>{{8, {}}, {7, {}}, {6, {3}}, {5, {2}}, {4, {2, 3}}, {3, {1, 2, 3}}}) {
    CAPTURE(cpus);
    const auto lowering = lower_capacity(node(8), node(cpus), others, own);
    REQUIRE(lowering.ok());
    CHECK(lowering->too_much == too_much);
    CHECK(lowering->why == (cpus < 8 ? fmt::format("capacity was lowered from 8 to {} CPUs", cpus) : ""));
  }
  CHECK(
      lower_capacity(node(8), node(2.9), others, own).error().message() ==
      "num_cpus = 2.9 is less than what is in use: 3 CPUs (run \"a\" (pid 7) has 2, run \"z\" (pid 7) has 1). Options: "
      "(1) num_cpus = 3 or more; (2) stop a run first: `trireme stop a` or `trireme stop z`; (3) make a run elastic "
      "(num_workers with a minimum and a maximum): it releases the workers above its minimum");
  // More is never refused, even if other drivers, which have their own declarations, hold more than that.
  CHECK(lower_capacity(node(1), node(2), others, own).value().too_much.empty());
  // Undeclared CPUs are time-shared: any limit is less.
  CHECK(lower_capacity(node(2, 0, false), node(5), others, own).value().why == "capacity was limited to 5 CPUs");
  CHECK_FALSE(lower_capacity(node(2, 0, false), node(2), others, own).ok());
}

TEST_CASE("fewer GPUs: the device matters, not only the total") {
  const auto one =
      lower_capacity(node(8, 4), node(8, 2), {}, {{holding("a", 1, {0}), false}, {holding("a", 1, {2}), true}});
  REQUIRE(one.ok());
  CHECK(one->too_much == std::vector<std::size_t>{1});
  CHECK(one->why == "capacity was lowered from 4 to 2 GPUs");
  CHECK(lower_capacity(node(8, 4), node(8, 2), {}, {{holding("a", 1, {2}), false}}).error().message() ==
        "num_gpus = 2 removes GPU 2, which run \"a\" (pid 7) uses. Options: (1) num_gpus = 3 or more; (2) "
        "stop the run first: `trireme stop a`");
  const auto none = lower_capacity(node(8, 2), node(8), {holding("z", 1, {0})}, {});
  CHECK(
      none.error().message().starts_with("num_gpus = 0 is less than what is in use: 1 GPU (run \"z\" (pid 7) has 1)"));
}

TEST_CASE("invalid amounts are refused") {
  CHECK(check_amounts({.num_cpus = 0.0, .num_gpus = 0, .resources = {{"tape", 0.5}}}).ok());
  CHECK(check_amounts({.num_cpus = -1.0, .num_gpus = {}, .resources = {}}).error().message() ==
        "num_cpus = -1: must be a number of at least 0");
  CHECK_FALSE(
      check_amounts({.num_cpus = std::numeric_limits<double>::quiet_NaN(), .num_gpus = {}, .resources = {}}).ok());
  CHECK_FALSE(check_amounts({.num_cpus = {}, .num_gpus = -1, .resources = {}}).ok());
  CHECK(check_amounts({.num_cpus = {}, .num_gpus = {}, .resources = {{"CPU", 1}}}).error().message() ==
        "resources['CPU']: use num_cpus instead");
}

TEST_CASE("an optional gang is answered at once, and is notified of room that others release") {
  const TempDir folder;
  EventBook base;
  EventBook extra;
  EventBook other;
  LocalEngine engine(options(folder, 4));
  reserve(engine, base, gang(2, "elastic"));
  const GangId one = reserve(engine, other, gang(1, "other"));
  auto request = gang(1, "elastic", true);
  request.timeout = 1000s;
  reserve(engine, extra, request);
  const GangId second = engine.reserve(request, extra.handler());
  CHECK(extra.next<ReserveFailed>().error.message().find("no room for more workers of run \"elastic\": run \"") !=
        std::string::npos);
  engine.release(second);  // held nothing: no notification
  engine.reserve(gang(5, "elastic", true), extra.handler());
  CHECK(extra.next<ReserveFailed>().error.message().find("CPU: 5 needed (5 x 1), 4 available") != std::string::npos);
  CHECK(base.count<RoomGrew>() == 0);
  CHECK(extra.count<ReserveWaiting>() == 0);

  engine.release(one);
  base.next<RoomGrew>();
  extra.next<RoomGrew>();
  reserve(engine, extra, request);
  CHECK(other.count<RoomGrew>() == 0);
  CHECK(free_cpus(engine) == 0);
}

TEST_CASE("a gang that waits for its minimum comes before optional workers of another run") {
  const TempDir folder;
  EventBook first;
  EventBook second;
  LocalEngine engine(options(folder, 4));
  reserve(engine, first, gang(2, "elastic"));
  engine.reserve(gang(3, "waits"), second.handler());
  second.next<ReserveWaiting>();
  engine.reserve(gang(1, "elastic", true), first.handler());
  CHECK(first.next<ReserveFailed>().error.message() ==
        "no room for more workers of run \"elastic\": run \"waits\" is waiting for it");
  CHECK(free_cpus(engine) == 2);
}

TEST_CASE("capacity is lowered and raised under running gangs") {
  const TempDir folder;
  EventBook base;
  EventBook older;
  EventBook newer;
  EventBook more;
  EventBook waiting;
  LocalEngine engine(options(folder, 4));
  const GangId least = reserve(engine, base, gang(2, "elastic"));
  reserve(engine, older, gang(1, "elastic", true));
  const GangId last = reserve(engine, newer, gang(1, "elastic", true));

  CHECK(engine.set_capacity({.num_cpus = 1, .num_gpus = {}, .resources = {}})
            .error()
            .message()
            .starts_with(fmt::format(
                "num_cpus = 1 is less than what is in use: 2 CPUs (run \"elastic\" (pid {}) has 2)", ::getpid())));
  CHECK(engine.nodes().front().total.at("CPU") == 4);
  CHECK_FALSE(engine.set_capacity({.num_cpus = -1, .num_gpus = {}, .resources = {}}).ok());

  const auto lowered = engine.set_capacity({.num_cpus = 3, .num_gpus = {}, .resources = {}});
  REQUIRE(lowered.ok());
  CHECK(lowered->total.at("CPU") == 3);
  CHECK(lowered->available.at("CPU") == 0);
  const auto reclaim = newer.next<Reclaim>();
  CHECK(reclaim.gang == last);
  CHECK(reclaim.why == "capacity was lowered from 4 to 3 CPUs");
  CHECK_FALSE(reclaim.seconds.has_value());
  CHECK(older.count<Reclaim>() + base.count<Reclaim>() == 0);
  CHECK(base.count<RoomGrew>() == 0);

  // Nothing is free before it is released, nor afterwards.
  engine.release(last);
  CHECK(free_cpus(engine) == 0);
  base.next<RoomGrew>();
  engine.reserve(gang(1, "elastic", true), more.handler());
  more.next<ReserveFailed>();

  engine.reserve(gang(2, "two"), waiting.handler());
  waiting.next<ReserveWaiting>();
  CHECK(engine.set_capacity({.num_cpus = 5, .num_gpus = {}, .resources = {{"tape", 1}}}).value().available.at("tape") ==
        1);
  waiting.next<Reserved>();
  base.next<RoomGrew>();
  older.next<RoomGrew>();
  CHECK(engine.set_capacity({}).value().total.at("tape") == 1);  // nothing set, nothing changed

  engine.declare(options(folder, 6).machine);
  base.next<RoomGrew>();
  CHECK(free_cpus(engine) == 1);
  engine.release(least);
}

TEST_CASE("a limit on time-shared CPUs: running gangs count from then on, for other drivers too") {
  const TempDir folder;
  EventBook base;
  EventBook extra;
  EventBook theirs;
  LocalEngine engine(options(folder, {}));
  reserve(engine, base, gang(3, "elastic"));
  const GangId id = reserve(engine, extra, gang(2, "elastic", true));
  CHECK_FALSE(engine.set_capacity({.num_cpus = 2, .num_gpus = {}, .resources = {}}).ok());
  CHECK_FALSE(engine.nodes().front().cpus_declared);

  LocalEngine neighbour(options(folder, 8));
  CHECK(free_cpus(neighbour) == 8);
  REQUIRE(engine.set_capacity({.num_cpus = 6, .num_gpus = {}, .resources = {}}).ok());
  CHECK(free_cpus(neighbour) == 3);
  CHECK(extra.count<Reclaim>() == 0);
  CHECK(engine.set_capacity({.num_cpus = 4, .num_gpus = {}, .resources = {}}).value().available.at("CPU") == 0);
  CHECK(extra.next<Reclaim>().why == "capacity was lowered from 6 to 4 CPUs");
  engine.release(id);
  CHECK(free_cpus(engine) == 1);

  // Reservations of another driver cannot be reclaimed.
  reserve(neighbour, theirs, gang(2, "neighbour"));
  CHECK(engine.set_capacity({.num_cpus = 3, .num_gpus = {}, .resources = {}})
            .error()
            .message()
            .find("is less than what is in use: 5 CPUs (run \"elastic\"") != std::string::npos);
}

TEST_CASE("gangs on time-shared CPUs are shown as in use") {
  const TempDir folder;
  EventBook book;
  LocalEngine engine(options(folder, {}));
  CHECK(engine.set_capacity({}).value().in_use.at("CPU") == 0);
  const GangId id = reserve(engine, book, gang(3));
  const NodeInfo node = engine.set_capacity({}).value();
  CHECK_FALSE(node.cpus_declared);
  CHECK(node.in_use.at("CPU") == 3);
  CHECK(engine.set_capacity({.num_cpus = 8, .num_gpus = {}, .resources = {}}).value().in_use.at("CPU") == 3);
  engine.release(id);
  CHECK(engine.set_capacity({}).value().in_use.at("CPU") == 0);
}

TEST_CASE("capacity before the first run, and while gangs are reserved and released") {
  const TempDir folder;
  EventBook book;
  LocalEngine engine(options(folder, {}));
  CHECK(engine.set_capacity({.num_cpus = 2, .num_gpus = {}, .resources = {}}).value().cpus_declared);
  CHECK_FALSE(engine.check(gang(3)).ok());

  std::jthread changes([&](const std::stop_token& stop) {
    for (int i = 0; !stop.stop_requested(); ++i) {
      CHECK(engine.set_capacity({.num_cpus = 2 + i % 3, .num_gpus = {}, .resources = {}}).ok());
    }
  });
  for (int i = 0; i < 50; ++i) {
    const GangId id = reserve(engine, book, gang(2));
    engine.start(id, 0, shell(folder.path(), "exec sleep 1000"));
    book.next<Started>();
    engine.release(id);
  }
  changes.request_stop();
  changes.join();
  REQUIRE(engine.set_capacity({.num_cpus = 2, .num_gpus = {}, .resources = {}}).ok());
  CHECK(free_cpus(engine) == 2);
}

}  // namespace capacity_test
