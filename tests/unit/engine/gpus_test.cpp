#include "engine/gpus.h"

#include <dlfcn.h>

#include <cstdlib>
#include <fstream>

#include "engine/machine.h"
#include "unit/engine/testing.h"

namespace gpus_test {

using namespace trireme;
using namespace trireme::engine;
using namespace trireme::engine::testing;

namespace {

using Variables = std::map<std::string, std::string>;

std::vector<std::string> ids(const std::vector<Gpu>& gpus) {
  std::vector<std::string> out;
  for (const auto& gpu : gpus) out.push_back(gpu.id);
  return out;
}

std::vector<std::string> types(const std::vector<Gpu>& gpus) {
  std::vector<std::string> out;
  for (const auto& gpu : gpus) out.push_back(gpu.type);
  return out;
}

GpuSources machine_with(std::vector<DetectedDevice> nvidia, Variables variables = {}, std::set<std::string> files = {},
                        std::vector<DetectedDevice> amd = {}) {
  return {.variable = [variables](std::string_view name) -> std::optional<std::string> {
            const auto found = variables.find(std::string(name));
            if (found == variables.end()) return {};
            return found->second;
          },
          .file_exists = [files](std::string_view path) { return files.contains(std::string(path)); },
          .nvidia = [nvidia] { return nvidia; },
          .amd = [amd] { return amd; }};
}

GpuInventory masked(const std::vector<DetectedDevice>& devices, const std::string& mask) {
  return find_gpus(machine_with(devices, {{"CUDA_VISIBLE_DEVICES", mask}}));
}

using Ids = std::vector<std::string>;

const std::vector<DetectedDevice> kAlike = {{"A100", "GPU-aa11"}, {"A100", "GPU-bb22"}, {"A100", "GPU-cc33"}};
const std::vector<DetectedDevice> kMixed = {{"A100", "GPU-aa11"}, {"A100", "GPU-bb22"}, {"H100", "GPU-cc33"}};
const std::vector<DetectedDevice> kOneLost = {
    {"A100", "GPU-aa11"}, {.name = "", .uuid = "", .problem = "GPU is lost"}, {"A100", "GPU-cc33"}};
const std::vector<DetectedDevice> kDivided = {{.name = "A100",
                                               .uuid = "GPU-aa11",
                                               .divided = true,
                                               .instances = {{"A100 MIG 3g", "MIG-1"}, {"A100 MIG 3g", "MIG-2"}}},
                                              {"A100", "GPU-bb22"},
                                              {.name = "A100", .uuid = "GPU-cc33", .divided = true}};

// The fake driver in tests/fake_driver, loaded instead of the driver of this machine.
class FakeNvml {
 public:
  explicit FakeNvml(const char* devices) : library_(::dlopen(TRIREME_FAKE_NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL)) {
    REQUIRE(library_);
    describe(devices);
  }
  FakeNvml(const FakeNvml&) = delete;
  FakeNvml& operator=(const FakeNvml&) = delete;
  ~FakeNvml() {
    ::unsetenv("TRIREME_FAKE_NVML");
    ::dlclose(library_);
  }
  static void describe(const char* devices) { ::setenv("TRIREME_FAKE_NVML", devices, 1); }

 private:
  void* library_;
};

// Hides environment variables that the user of the tests has set.
class Unmasked {
 public:
  Unmasked() {
    for (const char* name : kNames) {
      const char* value = std::getenv(name);
      before_.emplace_back(value ? std::optional<std::string>(value) : std::nullopt);
      ::unsetenv(name);
    }
  }
  Unmasked(const Unmasked&) = delete;
  Unmasked& operator=(const Unmasked&) = delete;
  ~Unmasked() {
    for (std::size_t i = 0; i < std::size(kNames); ++i) {
      ::unsetenv(kNames[i]);
      if (before_[i]) ::setenv(kNames[i], before_[i]->c_str(), 1);
    }
  }

 private:
  static constexpr const char* kNames[] = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES",
                                           "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",  "ASCEND_RT_VISIBLE_DEVICES"};
  std::vector<std::optional<std::string>> before_;
};

MachineOptions machine(const TempDir& folder, std::optional<int> num_gpus = {}) {
  return {.num_cpus = {}, .num_gpus = num_gpus, .resources = {}, .host = "here", .state_dir = folder.path()};
}

GangRequest gang(int workers, double gpus) {
  GangRequest request;
  request.run_name = "run";
  request.bundles.assign(static_cast<std::size_t>(workers), {{"GPU", gpus}});
  return request;
}

std::vector<Ids> gpus_of(const Result<std::variant<Machine::Granted, Machine::Busy>>& answer) {
  REQUIRE(answer.ok());
  std::vector<Ids> gpus;
  const auto* granted = std::get_if<Machine::Granted>(&*answer);
  if (!granted) return gpus;
  for (const auto& slot : granted->slots) gpus.push_back(slot.gpus);
  return gpus;
}

}  // namespace

TEST_CASE("the mask of the driver process limits the assigned GPUs, and its entries are their ids") {
  struct Row {
    std::string mask;
    Ids expected;
  };
  const std::vector<Row> rows = {
      {"", {}},
      {"2,0", {"2", "0"}},
      {" 1 , 2", {"1", "2"}},
      {"1,1", {"1"}},
      {"0,7,1", {"0"}},
      {"-1", {}},
      {"0,-1,1", {"0"}},
      {"GPU-bb", {"GPU-bb"}},
      {"GPU-zz,0", {}},
      {"MIG-1", {}},
      {"NoDevFiles", {}},
      {"2,GPU-aa11", {"2", "GPU-aa11"}},
      {"2,GPU-cc33", {"2"}},
  };
  for (const auto& row : rows) {
    CAPTURE(row.mask);
    const auto found = masked(kAlike, row.mask);
    CHECK(ids(found.gpus) == row.expected);
    CHECK_FALSE(found.bus_order);
    CHECK(found.warnings.empty());
  }
  CHECK(masked(kAlike, "GPU-cc").gpus.front().device() == "GPU-cc33");
}

TEST_CASE("without a mask the ids are indexes in PCI bus order, which CUDA is told") {
  const auto found = find_gpus(machine_with(kMixed));
  CHECK(ids(found.gpus) == Ids{"0", "1", "2"});
  CHECK(types(found.gpus) == Ids{"A100", "A100", "H100"});
  CHECK(visible_variables(found, {"2", "0"}) ==
        Variables{{"CUDA_VISIBLE_DEVICES", "2,0"}, {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}});
  // The user's own list counts in the user's order.
  CHECK(visible_variables(masked(kAlike, "1,2"), {"2"}) == Variables{{"CUDA_VISIBLE_DEVICES", "2"}});
}

TEST_CASE("indexes in a mask on a machine with different GPUs: CUDA's order is not the driver's") {
  const auto unsure = masked(kMixed, "0,2");
  CHECK(ids(unsure.gpus) == Ids{"0", "2"});
  CHECK(types(unsure.gpus) == Ids{"", ""});
  REQUIRE(unsure.warnings.size() == 1);
  CHECK(unsure.warnings.front().find("CUDA_DEVICE_ORDER=PCI_BUS_ID") != std::string::npos);
  const auto ordered =
      find_gpus(machine_with(kMixed, {{"CUDA_VISIBLE_DEVICES", "0,2"}, {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}}));
  CHECK(types(ordered.gpus) == Ids{"A100", "H100"});
  CHECK(ordered.warnings.empty());
  CHECK(types(masked(kMixed, "GPU-cc33").gpus) == Ids{"H100"});
}

TEST_CASE("a lost device is not assigned, and the others are identified by UUIDs") {
  const auto all = find_gpus(machine_with(kOneLost));
  CHECK(ids(all.gpus) == Ids{"GPU-aa11", "GPU-cc33"});
  REQUIRE(all.warnings.size() == 1);
  CHECK(all.warnings.front().starts_with("GPU 1 is not used: GPU is lost"));
  CHECK_FALSE(all.bus_order);
  // CUDA may count without the lost one, so the user's indexes are translated as well.
  CHECK(ids(masked(kOneLost, "1,2").gpus) == Ids{"GPU-cc33"});
  // The lost one does not count as a different type.
  const auto first_lost = masked({{.name = "", .uuid = "", .problem = "GPU is lost"}, kAlike[1], kAlike[2]}, "1,2");
  CHECK(ids(first_lost.gpus) == Ids{"GPU-bb22", "GPU-cc33"});
  CHECK(types(first_lost.gpus) == Ids{"A100", "A100"});
  CHECK(ids(declared_gpus(all, 3)) == Ids{"GPU-aa11", "GPU-cc33", "3"});
  CHECK(ids(declared_gpus(masked(kOneLost, "1,2"), 2)) == Ids{"GPU-cc33"});
}

TEST_CASE("MIG devices are assigned one by one") {
  CHECK(ids(find_gpus(machine_with(kDivided)).gpus) == Ids{"MIG-1", "MIG-2", "GPU-bb22"});
  CHECK(ids(masked(kDivided, "MIG-2").gpus) == Ids{"MIG-2"});
  CHECK(types(masked(kDivided, "MIG-2").gpus) == Ids{"A100 MIG 3g"});
  CHECK(ids(masked(kDivided, "0").gpus) == Ids{"MIG-1", "MIG-2"});
  CHECK(ids(masked(kDivided, "GPU-aa11,MIG-1").gpus) == Ids{"MIG-1", "MIG-2"});
  CHECK(ids(masked(kDivided, "2").gpus).empty());
  CHECK(ids(masked(kDivided, "MIG-3,1").gpus).empty());
}

TEST_CASE("declared GPUs never leave the mask") {
  const auto without_driver = masked({}, "4,5,6,7");
  CHECK(without_driver.gpus.empty());
  CHECK(ids(declared_gpus(without_driver, 4)) == Ids{"4", "5", "6", "7"});
  CHECK(ids(declared_gpus(without_driver, 2)) == Ids{"4", "5"});
  CHECK(ids(declared_gpus(without_driver, 6)) == Ids{"4", "5", "6", "7"});
  CHECK(ids(declared_gpus(masked({}, "GPU-aa,MIG-bb"), 2)) == Ids{"GPU-aa", "MIG-bb"});
  CHECK(declared_gpus(masked({}, ""), 2).empty());
  CHECK(ids(declared_gpus(masked(kAlike, "2,1"), 1)) == Ids{"2"});
  CHECK(ids(declared_gpus(masked(kAlike, "2,1"), 4)) == Ids{"2", "1"});
  CHECK(ids(declared_gpus(masked(kAlike, "2,7"), 2)) == Ids{"2"});
}

TEST_CASE("without a mask a declared number uses the detected GPUs first") {
  CHECK(ids(declared_gpus(find_gpus(machine_with({})), 2)) == Ids{"0", "1"});
  CHECK(ids(declared_gpus(find_gpus(machine_with(kAlike)), 4)) == Ids{"0", "1", "2", "3"});
  CHECK(declared_gpus(find_gpus(machine_with(kAlike)), 0).empty());
}

TEST_CASE("each kind of accelerator has its variable") {
  struct Row {
    Variables variables;
    std::set<std::string> files;
    Ids declared;     // with num_gpus = 2
    Variables shown;  // for the first of them
  };
  const std::vector<Row> rows = {
      {{}, {}, {"0", "1"}, {{"CUDA_VISIBLE_DEVICES", "0"}}},
      {{{"CUDA_VISIBLE_DEVICES", "4,5"}}, {}, {"4", "5"}, {{"CUDA_VISIBLE_DEVICES", "4"}}},
      {{}, {"/dev/kfd"}, {"0", "1"}, {{"HIP_VISIBLE_DEVICES", "0"}, {"CUDA_VISIBLE_DEVICES", "0"}}},
      {{{"HIP_VISIBLE_DEVICES", "4,5"}},
       {"/dev/kfd"},
       {"4", "5"},
       {{"HIP_VISIBLE_DEVICES", "4"}, {"CUDA_VISIBLE_DEVICES", "4"}}},
      {{{"CUDA_VISIBLE_DEVICES", "4,5"}},
       {"/dev/kfd"},
       {"4", "5"},
       {{"HIP_VISIBLE_DEVICES", "4"}, {"CUDA_VISIBLE_DEVICES", "4"}}},
      {{{"ROCR_VISIBLE_DEVICES", "6,7"}}, {"/dev/kfd"}, {"6", "7"}, {{"ROCR_VISIBLE_DEVICES", "6"}}},
      {{{"ROCR_VISIBLE_DEVICES", "6,7"}, {"HIP_VISIBLE_DEVICES", "1,0"}},
       {"/dev/kfd"},
       {"1", "0"},
       {{"HIP_VISIBLE_DEVICES", "1"}, {"CUDA_VISIBLE_DEVICES", "1"}}},
      {{}, {"/dev/davinci_manager"}, {"0", "1"}, {{"ASCEND_RT_VISIBLE_DEVICES", "0"}}},
      {{{"ZE_AFFINITY_MASK", "0.1,1"}}, {}, {"0.1", "1"}, {{"ZE_AFFINITY_MASK", "0.1"}}},
  };
  for (const auto& row : rows) {
    CAPTURE(row.shown.begin()->first);
    const auto found = find_gpus(machine_with({}, row.variables, row.files));
    const auto gpus = declared_gpus(found, 2);
    CHECK(ids(gpus) == row.declared);
    CHECK(visible_variables(found, {gpus.front().id}) == row.shown);
  }
}

TEST_CASE("AMD GPUs are found in the topology of the kernel driver") {
  const TempDir nodes;
  CHECK(kfd_devices(nodes / "absent").empty());
  const auto write = [&](int node, const std::string& name, const std::string& properties) {
    const fs::path folder = nodes / std::to_string(node);
    fs::create_directories(folder);
    std::ofstream(folder / "name") << name << "\n";
    std::ofstream(folder / "properties") << properties;
  };
  write(0, "", "cpu_cores_count 64\nsimd_count 0\n");
  write(1, "aqua_vanjaram", "cpu_cores_count 0\nsimd_count 1216\nunique_id 255\n");
  write(2, "aqua_vanjaram", "cpu_cores_count 0\nsimd_count 1216\nunique_id 256\n");
  write(3, "hidden", "");  // no permission
  const auto devices = kfd_devices(nodes.path());
  REQUIRE(devices.size() == 2);
  CHECK(devices[1].name == "AMD aqua_vanjaram");
  CHECK(devices[1].uuid == "GPU-0000000000000100");
  const auto found = find_gpus(machine_with({}, {{"HIP_VISIBLE_DEVICES", "1"}}, {"/dev/kfd"}, devices));
  CHECK(ids(found.gpus) == Ids{"1"});
  CHECK(found.gpus.front().device() == "GPU-0000000000000100");
}

TEST_CASE("querying the NVIDIA driver: names, UUIDs, MIG and a lost device") {
  const FakeNvml driver(
      "NVIDIA A100|GPU-aa;NVIDIA A100|GPU-bb|lost;NVIDIA H100|GPU-cc|mig=MIG-1:H100 1g,MIG-2:H100 1g");
  for (int i = 0; i < 2; ++i) {  // the library is closed and opened again
    const auto devices = nvml_devices();
    REQUIRE(devices.size() == 3);
    CHECK(devices[0].name == "NVIDIA A100");
    CHECK(devices[0].uuid == "GPU-aa");
    CHECK(devices[0].problem.empty());
    CHECK_FALSE(devices[0].divided);
    CHECK(devices[1].problem == "GPU is lost");
    CHECK(devices[2].divided);
    REQUIRE(devices[2].instances.size() == 2);
    CHECK(devices[2].instances[1].uuid == "MIG-2");
    CHECK(devices[2].instances[1].name == "H100 1g");
  }
  FakeNvml::describe("");
  CHECK(nvml_devices().empty());
  ::unsetenv("TRIREME_FAKE_NVML");  // the driver is not loaded
  CHECK(nvml_devices().empty());
}

TEST_CASE("drivers with different masks share the devices by their UUID") {
  const Unmasked unmasked;
  const FakeNvml driver("NVIDIA A100|GPU-aa;NVIDIA A100|GPU-bb;NVIDIA A100|GPU-cc");
  const TempDir folder;
  const Machine everything(machine(folder));
  const auto first = everything.reserve(gang(1, 1));
  CHECK(gpus_of(first) == std::vector<Ids>{{"0"}});
  CHECK(everything.visible_variables({"0"}).at("CUDA_DEVICE_ORDER") == "PCI_BUS_ID");

  ::setenv("CUDA_VISIBLE_DEVICES", "GPU-aa,GPU-bb", 1);
  const Machine by_uuid(machine(folder));
  CHECK(by_uuid.node().total.at("GPU") == 2);
  CHECK(by_uuid.node().available.at("GPU") == 1);
  const auto second = by_uuid.reserve(gang(1, 1));
  CHECK(gpus_of(second) == std::vector<Ids>{{"GPU-bb"}});
  CHECK(by_uuid.visible_variables({"GPU-bb"}) == Variables{{"CUDA_VISIBLE_DEVICES", "GPU-bb"}});

  ::setenv("CUDA_VISIBLE_DEVICES", "1,0,2", 1);
  const Machine by_index(machine(folder, 2));  // declares fewer than the mask allows
  CHECK(by_index.node().available.at("GPU") == 0);
  CHECK(gpus_of(by_index.reserve(gang(1, 0.5))).empty());
}

TEST_CASE("capacity may be lowered and raised within the mask") {
  const Unmasked unmasked;
  ::setenv("CUDA_VISIBLE_DEVICES", "6,4,5", 1);
  const TempDir folder;
  Machine masked_machine(machine(folder, 3));
  auto answer = masked_machine.reserve(gang(1, 2));
  CHECK(gpus_of(answer) == std::vector<Ids>{{"6", "4"}});
  auto& granted = std::get<Machine::Granted>(*answer);
  const std::vector<Machine::Occupant> occupants = {{.use = granted.use, .reservation = granted.reservation}};
  const auto with = [](int num_gpus) { return Capacity{.num_cpus = {}, .num_gpus = num_gpus, .resources = {}}; };
  const auto refused = masked_machine.set_capacity(with(1), occupants);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message().find("2 GPUs") != std::string::npos);
  REQUIRE(masked_machine.set_capacity(with(2), occupants).ok());
  CHECK(ids(masked_machine.node().gpus) == Ids{"6", "4"});
  REQUIRE(masked_machine.set_capacity(with(8), occupants).ok());
  CHECK(ids(masked_machine.node().gpus) == Ids{"6", "4", "5"});
  CHECK(masked_machine.node().available.at("GPU") == 1);
}

}  // namespace gpus_test
