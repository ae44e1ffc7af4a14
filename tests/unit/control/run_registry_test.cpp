#include "control/run_registry.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "base/host.h"
#include "unit/temp_dir.h"

namespace run_registry_test {

using namespace trireme::control;
using trireme::tests::append_file;
using trireme::tests::TempDir;

namespace {

RunEntry entry_of(const std::string& id, const std::string& name, double started = 1.0) {
  RunEntry entry;
  entry.id = id;
  entry.name = name;
  entry.path = "/results/" + name;
  entry.pid = ::getpid();
  entry.pid_start = process_start(::getpid()).value();
  entry.started = started;
  entry.address = "unix:@trireme";
  entry.secret = "abcdef";
  return entry;
}

std::string content(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    if (value) ::setenv(name, value, 1);
    else ::unsetenv(name);
  }
  ~Environment() {
    if (before_) ::setenv(name_, before_->c_str(), 1);
    else ::unsetenv(name_);
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace

TEST_CASE("the location of the state") {
  Environment home("HOME", "/home/u");
  Environment state("TRIREME_STATE_DIR", nullptr);
  Environment xdg("XDG_STATE_HOME", nullptr);
  CHECK(state_dir() == "/home/u/.local/state/trireme");
  Environment xdg_set("XDG_STATE_HOME", "/x");
  CHECK(state_dir() == "/x/trireme");
  Environment state_set("TRIREME_STATE_DIR", "/s");
  CHECK(state_dir() == "/s");
}

TEST_CASE("a run is registered for the user alone and can be read back") {
  TempDir dir;
  RunRegistry registry(dir.path());
  CHECK(registry.list_runs().empty());
  REQUIRE(registry.register_run(entry_of("id1", "digits")));
  REQUIRE(registry.list_runs().size() == 1);
  CHECK(registry.list_runs()[0] == entry_of("id1", "digits"));

  struct stat status {};
  REQUIRE(::stat((dir / "runs/id1.json").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  REQUIRE(::stat((dir / "runs").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path() / "runs"), {}) == 1);  // no draft left behind
}

TEST_CASE("the end of a run removes the secret") {
  TempDir dir;
  RunRegistry registry(dir.path());
  REQUIRE(registry.register_run(entry_of("id1", "digits")));
  CHECK(is_active(registry.list_runs()[0]));
  REQUIRE(registry.finish_run("id1"));
  CHECK_FALSE(is_active(registry.list_runs()[0]));
  std::string text = content(dir.path() / "runs/id1.json");
  CHECK(text.find("abcdef") == std::string::npos);
  CHECK(text.find("address") == std::string::npos);
  CHECK(text.find("digits") != std::string::npos);
  CHECK_FALSE(registry.finish_run("unknown"));
}

TEST_CASE("a run whose driver has exited is not active") {
  CHECK(is_active(entry_of("a", "a")));
  RunEntry reused = entry_of("a", "a");
  reused.pid_start -= 1;
  CHECK_FALSE(is_active(reused));

  pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(0);
  RunEntry dead = entry_of("a", "a");
  dead.pid = child;
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  CHECK_FALSE(process_start(child));  // a zombie runs nothing
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK_FALSE(is_active(dead));
  CHECK_FALSE(process_start(0));
}

TEST_CASE("runs are listed newest first, and foreign files are skipped") {
  TempDir dir;
  RunRegistry registry(dir.path());
  REQUIRE(registry.register_run(entry_of("old", "a", 1)));
  REQUIRE(registry.register_run(entry_of("new", "b", 2)));
  append_file(dir / "runs/torn.json", "{\"id\": \"x");
  append_file(dir / "runs/list.json", "[]");
  append_file(dir / "runs/later.json", R"({"id":"later","name":"c","started":3,"field_of_tomorrow":1})");
  auto runs = registry.list_runs();
  REQUIRE(runs.size() == 3);
  CHECK(runs[0].id == "later");
  CHECK(runs[1].id == "new");
  CHECK(runs[2].id == "old");
}

TEST_CASE("runs are found by id, name, folder and prefix of the id") {
  TempDir dir;
  Environment results("TRIREME_RESULTS", (dir / "results").c_str());
  RunRegistry registry(dir.path());
  RunEntry digits = entry_of("aa11", "digits", 1);
  digits.path = dir / "results/digits";
  append_file(digits.path + "/run.json", R"({"format":1,"name":"digits","id":"aa11"})");
  REQUIRE(registry.register_run(digits));
  REQUIRE(registry.register_run(entry_of("ab22", "faces", 2)));

  CHECK(registry.find_run("aa11").value() == digits);
  CHECK(registry.find_run("digits").value() == digits);
  CHECK(registry.find_run(digits.path).value() == digits);
  CHECK(registry.find_run(digits.path + "/").value() == digits);
  CHECK(registry.find_run("aa").value() == digits);

  SUBCASE("a folder that is not registered") {
    append_file(dir / "copied/run.json", R"({"format":1,"name":"other","id":"zz"})");
    auto found = registry.find_run(dir / "copied");
    REQUIRE(found);
    CHECK(found->name == "other");
    CHECK(found->id == "zz");
    CHECK_FALSE(is_active(*found));
    append_file(dir / "results/here/run.json", R"({"format":1,"name":"here","id":"yy"})");
    CHECK(registry.find_run("here").value().id == "yy");
  }
  SUBCASE("none") {
    CHECK(registry.find_run("digit").error().message().find("did you mean 'digits'?") != std::string::npos);
    CHECK_FALSE(registry.find_run(""));
  }
  SUBCASE("several by the prefix of the id") {
    REQUIRE(registry.finish_run("aa11"));
    REQUIRE(registry.finish_run("ab22"));
    auto found = registry.find_run("a");
    REQUIRE_FALSE(found);
    CHECK(found.error().message().find("aa11  digits") != std::string::npos);
    CHECK(found.error().message().find("ab22  faces") != std::string::npos);
  }
  SUBCASE("several by name: the active one is returned") {
    RunEntry elsewhere = entry_of("cc33", "digits", 3);
    REQUIRE(registry.register_run(elsewhere));
    CHECK_FALSE(registry.find_run("digits"));  // both active
    REQUIRE(registry.finish_run("aa11"));
    CHECK(registry.find_run("digits").value().id == "cc33");
  }
  SUBCASE("a continued run is one run, represented by its newest entry") {
    RunEntry again = digits;
    again.id = "dd44";
    again.started = 9;
    REQUIRE(registry.register_run(again));
    CHECK(registry.find_run("digits").value().id == "dd44");
  }
}

TEST_CASE("a state folder that is not writable is an error") {
  TempDir dir;
  append_file(dir / "file", "");
  auto result = RunRegistry(dir / "file").register_run(entry_of("a", "a"));
  REQUIRE_FALSE(result);
  CHECK(result.error().message().find("TRIREME_STATE_DIR") != std::string::npos);
  CHECK_FALSE(RunRegistry(dir.path()).register_run(entry_of("../a", "a")));
}

TEST_CASE("old runs are removed, active ones never") {
  TempDir dir;
  RunRegistry registry(dir.path());
  REQUIRE(registry.register_run(entry_of("active", "a", 0.5)));
  for (std::size_t i = 0; i < RunRegistry::kMaxRemembered; ++i) {
    append_file(dir / ("runs/" + std::to_string(i) + ".json"),
                R"({"id":")" + std::to_string(i) + R"(","started":)" + std::to_string(i + 1) + "}");
  }
  REQUIRE(registry.register_run(entry_of("last", "b", 1e9)));
  auto runs = registry.list_runs();
  CHECK(runs.size() <= RunRegistry::kMaxRemembered);
  CHECK(runs.front().id == "last");
  CHECK(runs.back().id == "active");
}

TEST_CASE("a run on another machine that shares the home directory") {
  TempDir dir;
  RunRegistry registry(dir.path());
  RunEntry entry = entry_of("aaaaaaaaaaaa", "far");
  entry.host = "elsewhere";
  entry.pid = 1;  // a process on this machine that is not the driver
  REQUIRE(registry.register_run(entry));
  const auto found = registry.find_run("far");
  REQUIRE(found);
  CHECK(is_elsewhere(*found));
  CHECK(is_active(*found));  // as far as can be known
  REQUIRE(registry.finish_run(entry.id));
  CHECK_FALSE(is_active(registry.find_run("far").value()));
}

TEST_CASE("a pid is only valid in its own process table") {
  RunEntry entry = entry_of("aaaaaaaaaaaa", "run");
  CHECK(is_active(entry));  // from a version without this field
  entry.host = trireme::base::host_name();
  entry.process_table = trireme::base::process_table();
  CHECK_FALSE(is_elsewhere(entry));
  CHECK(is_active(entry));
  // Before a reboot, or in a container that this one has replaced.
  entry.process_table = "another boot pid:[1]";
  CHECK_FALSE(is_active(entry));
}

TEST_CASE("the state folder belongs to this user alone") {
  TempDir dir;
  const std::filesystem::path state =
      std::filesystem::path(dir.path()) / fmt::format("trireme-{}", ::geteuid()) / "state";
  REQUIRE(make_state_dir(state));
  struct stat found {};
  REQUIRE(::stat(state.c_str(), &found) == 0);
  CHECK((found.st_mode & 07777) == 0700);
  ::chmod(state.c_str(), 0777);
  REQUIRE(make_state_dir(state));
  REQUIRE(::stat(state.c_str(), &found) == 0);
  CHECK((found.st_mode & 022) == 0);
  if (::geteuid() != 0) return;  // only root can create a folder of another user
  for (const auto& taken : {state, state.parent_path()}) {
    REQUIRE(::chown(taken.c_str(), 12345, 12345) == 0);
    auto refused = make_state_dir(state);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message().find("belongs to another user (uid 12345)") != std::string::npos);
    REQUIRE(::chown(taken.c_str(), 0, 0) == 0);
  }
}

TEST_CASE("a user without $HOME has the home directory of the user database, and never /tmp itself") {
  Environment home("HOME", nullptr);
  Environment state("TRIREME_STATE_DIR", nullptr);
  Environment xdg("XDG_STATE_HOME", nullptr);
  CHECK(state_dir() != "/tmp/.local/state/trireme");
}

}  // namespace run_registry_test
