#include "engine/ledger.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>

#include <csignal>

#include "engine/machine.h"
#include "unit/engine/testing.h"

namespace ledger_test {

using namespace trireme;
using namespace trireme::engine;
using namespace trireme::engine::testing;

namespace {

Holding holding(const std::string& run, double cpus) {
  return {.pid = ::getpid(), .run_name = run, .resources = {{"CPU", cpus}}, .gpus = {{.device = "1", .share = 0.5}}};
}

std::optional<Reservation> take(const Ledger& ledger, const Holding& what) {
  auto taken = ledger.reserve([&](const auto&) { return what; });
  REQUIRE(taken.ok());
  return std::move(taken).value();
}

GangRequest gang(int workers, Resources bundle, const std::string& name = "run") {
  GangRequest request;
  request.run_name = name;
  request.bundles.assign(static_cast<std::size_t>(workers), bundle);
  return request;
}

// A process that does `act` and then waits to be killed.
class OtherProcess {
 public:
  explicit OtherProcess(const std::function<void()>& act) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      act();
      [[maybe_unused]] const auto told = ::write(ends[1], "x", 1);
      for (;;) ::pause();
    }
    ::close(ends[1]);
    char done = 0;
    REQUIRE(::read(ends[0], &done, 1) == 1);
    ::close(ends[0]);
  }
  ~OtherProcess() { crash(); }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;
  void crash() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  int pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

}  // namespace

TEST_CASE("a reservation is visible to all processes until it is destroyed") {
  const TempDir folder;
  const Ledger ledger(folder / "capacity");
  const Ledger other(folder / "capacity");
  CHECK(ledger.holdings()->empty());
  CHECK_FALSE(fs::exists(folder / "capacity"));
  const auto descriptors = open_descriptors();
  {
    const auto first = take(ledger, holding("one", 2));
    const auto second = take(ledger, holding("two", 3));
    auto seen = *other.holdings();
    REQUIRE(seen.size() == 2);
    if (seen[0].run_name != "one") std::swap(seen[0], seen[1]);
    CHECK(seen[0] == holding("one", 2));
    CHECK(seen[1] == holding("two", 3));
  }
  CHECK(other.holdings()->empty());
  CHECK(open_descriptors() == descriptors);
}

TEST_CASE("nothing is reserved if the decision is no") {
  const TempDir folder;
  const Ledger ledger(folder / "capacity");
  const auto taken = ledger.reserve([](const auto&) { return std::nullopt; });
  REQUIRE(taken.ok());
  CHECK_FALSE(taken->has_value());
  CHECK(ledger.holdings()->empty());
}

TEST_CASE("a crash frees the reservations of the process, and its files are removed") {
  const TempDir folder;
  const Ledger ledger(folder / "capacity");
  std::optional<Reservation> leaked;
  OtherProcess other([&] { leaked = take(ledger, holding("other", 4)); });
  REQUIRE(ledger.holdings()->size() == 1);
  CHECK(ledger.holdings()->front().pid == other.pid());
  other.crash();
  CHECK(ledger.holdings()->empty());
  for (const auto& entry : fs::directory_iterator(folder / "capacity")) CHECK(entry.path().filename() == "lock");
}

TEST_CASE("a forked copy of the holder releases nothing") {
  const TempDir folder;
  const Ledger ledger(folder / "capacity");
  auto mine = take(ledger, holding("mine", 1));
  OtherProcess copy([&] { mine.reset(); });
  CHECK(ledger.holdings()->size() == 1);
  mine.reset();
  // The copy still has the same open file.
  CHECK(ledger.holdings()->empty());
}

TEST_CASE("concurrent processes never reserve more than the capacity") {
  const TempDir folder;
  const auto decide = [](const std::vector<Holding>& holdings) -> std::optional<Holding> {
    if (holdings.size() >= 3) return {};
    return holding("x", 1);
  };
  std::vector<std::unique_ptr<OtherProcess>> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(std::make_unique<OtherProcess>([&] {
      auto taken = Ledger(folder / "capacity").reserve(decide);
      if (taken.ok()) new std::optional<Reservation>(std::move(taken).value());
    }));
  }
  CHECK(Ledger(folder / "capacity").holdings()->size() == 3);
}

TEST_CASE("the error for a folder that is not writable names it and a solution") {
  const TempDir folder;
  std::ofstream(folder / "file") << "in the way";
  const auto taken = Ledger(folder / "file/capacity").reserve([](const auto&) { return std::nullopt; });
  REQUIRE_FALSE(taken.ok());
  CHECK(taken.error().message().find("file/capacity") != std::string::npos);
  CHECK(taken.error().message().find("TRIREME_STATE_DIR") != std::string::npos);
}

TEST_CASE("drivers share declared CPUs, GPUs and custom resources; undeclared CPUs touch no file") {
  const TempDir state;
  const MachineOptions declared{
      .num_cpus = 8, .num_gpus = 2, .resources = {{"license", 1}}, .host = "here", .state_dir = state.path()};
  const Machine machine(declared);
  const Machine shared({.num_cpus = {}, .num_gpus = 0, .resources = {}, .host = "here", .state_dir = state.path()});

  auto free = shared.reserve(gang(100, {{"CPU", 4}}));
  REQUIRE(free.ok());
  CHECK_FALSE(std::get<Machine::Granted>(*free).reservation);
  CHECK(fs::is_empty(state.path()));
  CHECK_FALSE(shared.node().cpus_declared);

  std::optional<Result<std::variant<Machine::Granted, Machine::Busy>>> held;
  OtherProcess other([&] { held = Machine(declared).reserve(gang(2, {{"CPU", 3}, {"GPU", 0.5}}, "first")); });
  const NodeInfo node = machine.node();
  CHECK(node.total == Resources{{"CPU", 8}, {"GPU", 2}, {"license", 1}});
  CHECK(node.available == Resources{{"CPU", 2}, {"GPU", 1}, {"license", 1}});
  CHECK(node.gpus[0].available == 0.0);

  const auto busy = machine.reserve(gang(1, {{"CPU", 4}}));
  REQUIRE(busy.ok());
  CHECK(std::get<Machine::Busy>(*busy).why ==
        fmt::format(R"(run "first" (pid {}) has {{"CPU": 6}} of {{"CPU": 8}})", other.pid()));
  {
    const auto fits = machine.reserve(gang(1, {{"CPU", 2}, {"GPU", 1}}));
    REQUIRE(fits.ok());
    CHECK(std::get<Machine::Granted>(*fits).slots.front().gpus == std::vector<std::string>{"1"});
    CHECK(std::holds_alternative<Machine::Busy>(*machine.reserve(gang(1, {{"GPU", 0.5}}))));
  }
  other.crash();
  CHECK(std::holds_alternative<Machine::Granted>(*machine.reserve(gang(2, {{"CPU", 4}, {"GPU", 1}}))));
  CHECK_FALSE(machine.reserve(gang(3, {{"CPU", 4}})).ok());
}

}  // namespace ledger_test
