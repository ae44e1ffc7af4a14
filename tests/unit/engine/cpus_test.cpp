#include "engine/cpus.h"

#include "unit/engine/testing.h"

namespace cpus_test {

using namespace trireme::engine;
using trireme::engine::testing::TempDir;

namespace {

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("the tightest quota up to the root counts, in both versions of control groups") {
  const TempDir root;
  CHECK_FALSE(cpu_quota("0::/a/b\n", root.path()));
  write(root / "a/b/cpu.max", "max 100000\n");
  CHECK_FALSE(cpu_quota("0::/a/b\n", root.path()));
  write(root / "a/cpu.max", "150000 100000\n");
  write(root / "cpu.max", "400000 100000\n");
  CHECK(*cpu_quota("0::/a/b\n", root.path()) == doctest::Approx(1.5));
  // A path of the host, seen from inside a container.
  CHECK(*cpu_quota("0::/../../elsewhere\n", root.path()) == doctest::Approx(4.0));

  write(root / "cpu/job/cpu.cfs_quota_us", "200000\n");
  write(root / "cpu/job/cpu.cfs_period_us", "100000\n");
  CHECK(*cpu_quota("4:memory:/x\n3:cpu,cpuacct:/job\n", root.path()) == doctest::Approx(2.0));
  write(root / "cpu/job/cpu.cfs_quota_us", "-1\n");
  CHECK_FALSE(cpu_quota("3:cpu,cpuacct:/job\n", root.path()));
}

TEST_CASE("this process may use at least a fraction of one CPU and at most all of them") {
  CHECK(usable_cpus() > 0.0);
  CHECK(usable_cpus() <= static_cast<double>(::sysconf(_SC_NPROCESSORS_CONF)));
}

}  // namespace cpus_test
