#include "engine/gpus.h"

#include <doctest/doctest.h>

namespace gpus_test {

using namespace trireme::engine;

namespace {

std::vector<int> indexes(const std::vector<Gpu>& gpus) {
  std::vector<int> out;
  for (const auto& gpu : gpus) out.push_back(gpu.index);
  return out;
}

const std::vector<Device> kDevices = {{"A100", "GPU-aa11"}, {"A100", "GPU-bb22"}, {"H100", "GPU-cc33"}};

}  // namespace

TEST_CASE("CUDA_VISIBLE_DEVICES of the driver limits the assigned GPUs") {
  struct Row {
    std::optional<std::string> visible;
    std::vector<int> expected;
  };
  const std::vector<Row> rows = {
      {std::nullopt, {0, 1, 2}},
      {"", {}},
      {"2,0", {2, 0}},
      {" 1 , 2", {1, 2}},
      {"1,1", {1}},
      {"0,7,1", {0}},
      {"-1", {}},
      {"GPU-bb", {1}},
      {"GPU-zz,0", {}},
      {"MIG-1/2", {}},
      {"NoDevFiles", {}},
      {"2,GPU-aa11", {2, 0}},
  };
  for (const auto& row : rows) {
    CAPTURE(row.visible.value_or("unset"));
    CHECK(indexes(visible_gpus(kDevices, row.visible)) == row.expected);
  }
  CHECK(visible_gpus(kDevices, "2").front().type == "H100");
  CHECK(visible_gpus({}, "0,1").empty());
}

TEST_CASE("a declared number of GPUs uses the detected ones first") {
  const auto found = visible_gpus(kDevices, "2,1");
  CHECK(indexes(declared_gpus(found, 1)) == std::vector<int>{2});
  CHECK(indexes(declared_gpus(found, 4)) == std::vector<int>{2, 1, 0, 3});
  CHECK(indexes(declared_gpus({}, 2)) == std::vector<int>{0, 1});
  CHECK(declared_gpus(found, 0).empty());
}

TEST_CASE("querying the NVIDIA driver twice gives the same answer, also without a driver") {
  const auto once = nvml_devices();
  const auto twice = nvml_devices();
  REQUIRE(once.size() == twice.size());
  for (std::size_t i = 0; i < once.size(); ++i) CHECK(once[i].uuid == twice[i].uuid);
}

}  // namespace gpus_test
