#include "engine/out_of_memory.h"

#include <sys/stat.h>

#include <csignal>

#include "engine/local_engine.h"
#include "unit/engine/testing.h"

namespace out_of_memory_test {

using namespace trireme;
using namespace trireme::engine;
using namespace trireme::engine::testing;

namespace {

constexpr const char* kLine =
    "3,812,5123456,-;Memory cgroup out of memory: Killed process {} (python) total-vm:1000kB, anon-rss:900kB, UID:0\n";

void write_text(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// Files as the kernel shows them, in a folder.
struct FakeKernel {
  explicit FakeKernel(const TempDir& folder, const std::string& pid_namespace = "pid:[4026531836]")
      : files{.proc = folder / "proc", .cgroups = folder / "cgroup", .log = folder / "kmsg"} {
    fs::create_directories(files.proc / "self/ns");
    fs::create_symlink(pid_namespace, files.proc / "self/ns/pid");
    write_text(files.log, fmt::format(fmt::runtime(kLine), 11));
  }
  void join(int pid, const std::string& membership) const {
    write_text(files.proc / std::to_string(pid) / "cgroup", membership);
  }
  void kills(const fs::path& file, int count) const {
    write_text(files.cgroups / file, fmt::format("low 0\noom 9\noom_kill {}\noom_group_kill 0\n", count));
  }
  void log(const std::string& text) const { std::ofstream(files.log, std::ios::app) << text; }

  KernelFiles files;
};

// A memory cgroup of 32 MB that a shell can enter, if this user may create one.
class SmallGroup {
 public:
  SmallGroup() {
    const std::string name = fmt::format("trireme_test_{}", ::getpid());
    for (const fs::path mount : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      std::error_code failure;
      if (!fs::create_directory(mount / name, failure) || failure) continue;
      path = mount / name;
      if (set("memory.limit_in_bytes") || set("memory.max")) {
        set("memory.memsw.limit_in_bytes");
        std::ofstream(path / "memory.swap.max") << "0";
        return;
      }
      fs::remove(path, failure);
      path.clear();
    }
  }
  ~SmallGroup() {
    if (path.empty()) return;
    // rmdir, because the files in it cannot be removed; busy until the kernel has released its last process.
    CHECK(eventually([&] { return ::rmdir(path.c_str()) == 0; }));
  }
  SmallGroup(const SmallGroup&) = delete;
  SmallGroup& operator=(const SmallGroup&) = delete;

  // Enters the group, reports it, waits for input, and allocates memory until it is killed.
  std::string script() const {
    return fmt::format(
        "mkfifo go; echo $$ > {}/cgroup.procs && echo $$ > ready; read word < go; ulimit -v 2000000; exec tail "
        "/dev/zero",
        path.string());
  }

  fs::path path;

 private:
  bool set(const char* name) const {
    std::error_code failure;
    if (!fs::exists(path / name, failure)) return false;
    return static_cast<bool>(std::ofstream(path / name) << (32 << 20) << std::flush);
  }
};

const ExitStatus kKilled{ExitStatus::Kind::kSignal, SIGKILL};

}  // namespace

TEST_CASE("cgroup counters: each increment explains one process") {
  const TempDir folder;
  const FakeKernel kernel(folder);
  kernel.join(1, "1:name=systemd:/\n0::/user.slice/a:b\n");
  kernel.join(2, "0::/user.slice/a:b\n");
  kernel.join(3, "9:cpu,memory:/group\n0::/\n");
  kernel.join(4, "0::/on/the/host\n");
  kernel.join(5, "0::/../../outside\n");
  kernel.kills("user.slice/a:b/memory.events", 3);
  kernel.kills("memory/group/memory.oom_control", 0);
  OutOfMemory out_of_memory(kernel.files);
  const auto one = out_of_memory.counters(1);
  const auto two = out_of_memory.counters(2);
  const auto three = out_of_memory.counters(3);
  CHECK(out_of_memory.counters(4).empty());
  CHECK(out_of_memory.counters(5).empty());
  CHECK(out_of_memory.counters(999).empty());
  CHECK(out_of_memory.evidence(1, one).empty());

  kernel.kills("user.slice/a:b/memory.events", 4);
  CHECK(out_of_memory.evidence(1, one) == "oom_kill of its cgroup (/user.slice/a:b) rose from 3 to 4");
  CHECK(out_of_memory.evidence(2, two).empty());
  const auto later = out_of_memory.counters(2);
  kernel.kills("user.slice/a:b/memory.events", 6);
  CHECK(out_of_memory.evidence(2, later) == "oom_kill of its cgroup (/user.slice/a:b) rose from 4 to 6");
  CHECK(out_of_memory.evidence(1, one) == "oom_kill of its cgroup (/user.slice/a:b) rose from 3 to 6");
  CHECK(out_of_memory.evidence(1, one).empty());
  kernel.kills("memory/group/memory.oom_control", 1);
  CHECK(out_of_memory.evidence(3, three) == "oom_kill of its cgroup (/group) rose from 0 to 1");

  // The group itself if the kernel counts it separately from its children; the mount if the path is the host's.
  kernel.kills("user.slice/a:b/memory.events.local", 1);
  CHECK(out_of_memory.counters(1).at(0).kills == 1);
  kernel.kills("memory.events", 8);
  CHECK(out_of_memory.counters(4).at(0).kills == 8);
}

TEST_CASE("kernel log: only lines about this process since it started") {
  const TempDir folder;
  const FakeKernel kernel(folder);
  const auto line = [](int pid) { return fmt::format(fmt::runtime(kLine), pid); };
  OutOfMemory out_of_memory(kernel.files);
  CHECK(out_of_memory.evidence(11, {}).empty());  // logged before
  kernel.log("6,813,1,-;usb 1-1: new device\n SUBSYSTEM=usb\n" + line(12) + line(471));
  CHECK(out_of_memory.evidence(47, {}).empty());
  CHECK(out_of_memory.evidence(12, {}) ==
        "kernel log: Memory cgroup out of memory: Killed process 12 (python) total-vm:1000kB, anon-rss:900kB, "
        "UID:0");
  CHECK(out_of_memory.counters(471).empty());
  CHECK(out_of_memory.evidence(471, {}).empty());  // logged about an earlier process with that pid
  kernel.log("3,900,1,-;Killed process 471 (x), UID 0, total-vm:1kB, anon-rss:1kB\n");
  CHECK(out_of_memory.evidence(471, {}).starts_with("kernel log: Killed process 471"));

  const TempDir container;
  const FakeKernel inside(container, "pid:[4026532000]");
  OutOfMemory elsewhere(inside.files);
  inside.log(line(12));
  CHECK(elsewhere.evidence(12, {}).empty());

  auto unreadable = kernel.files;
  unreadable.log = folder / "no such file";
  CHECK(OutOfMemory(unreadable).evidence(12, {}).empty());
}

TEST_CASE("a process that the kernel really kills for lack of memory") {
  const SmallGroup group;
  if (group.path.empty()) {
    MESSAGE("skipped: this user cannot create a memory cgroup");
    return;
  }
  const TempDir folder;
  KernelFiles files;
  files.log = folder / "none";
  OutOfMemory by_counter(files);
  OutOfMemory by_log;
  const auto process = launch_worker(shell(folder.path(), group.script()));
  REQUIRE(process.ok());
  written_number(folder / "ready");
  const auto counters = by_counter.counters(process->pid);
  REQUIRE(counters.size() == 1);
  by_log.counters(process->pid);
  std::ofstream(folder / "go") << "now\n";
  REQUIRE(ended(process->pidfd));
  CHECK(peek_status(process->pid) == kKilled);
  CHECK(reap(*process) == kKilled);
  CHECK(peek_status(process->pid) == ExitStatus{});
  CHECK(by_counter.evidence(process->pid, counters) ==
        fmt::format("oom_kill of its cgroup (/{}) rose from 0 to 1", group.path.filename().string()));
  const std::string said = by_log.evidence(process->pid, {});
  if (said.empty()) {
    MESSAGE("the kernel log is not readable here");
  } else {
    CHECK(said.find(fmt::format("Killed process {} (", process->pid)) != std::string::npos);
  }

  // The same through the engine. Its worker has changed its group in the meantime, so only the log shows it.
  EventBook book;
  LocalEngine engine(
      {.machine = {.num_cpus = {}, .num_gpus = 0, .resources = {}, .host = "h", .state_dir = folder / "s"},
       .python = {}});
  GangRequest request;
  request.bundles = {{{"CPU", 1}}, {{"CPU", 1}}};
  const GangId id = engine.reserve(request, book.handler());
  fs::remove(folder / "ready");
  fs::remove(folder / "go");
  engine.start(id, 0, shell(folder.path(), group.script()));
  written_number(folder / "ready");
  std::ofstream(folder / "go") << "now\n";
  auto exited = book.next<Exited>();
  CHECK(exited.status == kKilled);
  CHECK(exited.out_of_memory.empty() == said.empty());

  // A SIGKILL from another process is no evidence.
  engine.start(id, 0, shell(folder.path(), "exec sleep 1000"));
  ::kill(book.next<Started>().pid, SIGKILL);
  exited = book.next<Exited>();
  CHECK(exited.status == kKilled);
  CHECK(exited.out_of_memory.empty());
}

}  // namespace out_of_memory_test
