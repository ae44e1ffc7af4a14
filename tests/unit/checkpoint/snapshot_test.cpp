#include "checkpoint/snapshot.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "checkpoint/file_bytes.h"
#include "unit/temp_dir.h"

namespace snapshot_test {

using namespace trireme;
using namespace trireme::checkpoint;
using trireme::tests::TempDir;

namespace {

// Large enough for several threads, and not a multiple of the chunk size.
Tensor large(std::int64_t elements, std::int32_t seed) {
  Tensor tensor(DType::kI32, {elements});
  auto values = tensor.values<std::int32_t>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i) * 7 + seed;
  return tensor;
}

Dict state_of(std::int64_t elements, std::int32_t seed) {
  return {{"w", large(elements, seed)}, {"b", Tensor::of<float>({1, 2, 3})}, {"seed", seed}};
}

std::map<std::string, std::string> paths_of(const Snapshot& snapshot) {
  std::map<std::string, std::string> paths;
  for (const auto& [name, fd] : snapshot.descriptors()) {
    paths[name] = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd);
  }
  return paths;
}

ino_t memory_of(const Snapshot& snapshot) {
  struct stat status {};
  REQUIRE(::fstat(snapshot.descriptors().at(kTensorsName), &status) == 0);
  return status.st_ino;
}

}  // namespace

TEST_CASE("a snapshot keeps the state of the time when it was taken") {
  TempDir folder;
  SnapshotPool pool;
  for (std::int64_t elements : {0, 3, 9'000'001}) {
    Dict state = state_of(elements, 1);
    const Dict expected = state_of(elements, 1);
    const auto snapshot = pool.take(state).value();
    if (elements > 0) state["w"].as_tensor().values<std::int32_t>()[0] = 99;
    state["seed"] = 99;
    REQUIRE(snapshot->write(folder / "s").ok());
    CHECK(load_state(folder / "s").value() == expected);
  }
}

TEST_CASE("a snapshot writes the same files as save_state()") {
  TempDir folder;
  const Dict state = state_of(100'000, 5);
  const auto saved = save_state(folder / "a", state).value();
  for (int threads : {0, 1, 3}) {
    SnapshotPool pool(threads);
    CHECK(pool.take(state).value()->write(folder / "b", {.threads = threads}).value() == saved);
  }
}

TEST_CASE("memory is reused by states of any size") {
  TempDir folder;
  SnapshotPool pool;
  ino_t memory = 0;
  for (std::int64_t elements : {1000, 1000, 5'000'000, 10, 2'000'000, 0, 1000}) {
    const auto snapshot = pool.take(state_of(elements, 3)).value();
    if (memory != 0) CHECK(memory_of(*snapshot) == memory);
    memory = memory_of(*snapshot);
    REQUIRE(snapshot->write(folder / "s", {.durable = false}).ok());
    CHECK(load_state(folder / "s").value() == state_of(elements, 3));
    CHECK(pool.num_spare() == 0);
  }
  CHECK(pool.num_spare() == 1);
}

TEST_CASE("snapshots in flight have separate memory, and the best fit is reused first") {
  SnapshotPool pool;
  auto small = pool.take(state_of(10, 1)).value();
  auto big = pool.take(state_of(1'000'000, 2)).value();
  const ino_t of_small = memory_of(*small);
  const ino_t of_big = memory_of(*big);
  CHECK(of_small != of_big);
  small.reset();
  big.reset();
  CHECK(pool.num_spare() == 2);
  CHECK(memory_of(*pool.take(state_of(1'000'000, 2)).value()) == of_big);
  CHECK(memory_of(*pool.take(state_of(10, 2)).value()) == of_small);
}

TEST_CASE("a snapshot may outlive its pool and be written by another thread") {
  TempDir folder;
  auto pool = std::make_unique<SnapshotPool>();
  auto snapshot = pool->take(state_of(1000, 4)).value();
  pool.reset();
  std::jthread([&, held = std::move(snapshot)] { REQUIRE(held->write(folder / "s").ok()); }).join();
  CHECK(load_state(folder / "s").value() == state_of(1000, 4));
}

TEST_CASE("the files of a snapshot can be opened in memory and have the size of the state") {
  TempDir folder;
  SnapshotPool pool;
  pool.take(state_of(500'000, 1)).value();  // leaves a larger buffer behind
  auto snapshot = pool.take(state_of(1000, 2)).value();
  CHECK(snapshot->num_bytes() < 10'000);
  for (bool map : {true, false}) {
    const LoadOptions options{.map = map, .elsewhere = paths_of(*snapshot)};
    CHECK(load_state(folder / "nowhere", options).value() == state_of(1000, 2));
  }
}

TEST_CASE("a failed copy or write is an error, and its memory is reused") {
  TempDir folder;
  SnapshotPool pool;
  CHECK_FALSE(pool.take({{"a", Dict{{"$tensor", "x"}}}}).ok());
  tests::append_file(folder / "file", "");
  {
    auto snapshot = pool.take(state_of(10, 1)).value();
    CHECK_FALSE(snapshot->write(folder / "file").ok());
  }
  CHECK(pool.num_spare() == 1);
}

namespace {

// Counts what is copied, and where memory is pinned.
struct FakeDevice {
  int batches = 0;
  int pins = 0;
  std::map<void*, std::size_t> pinned;
  std::string failure;
};

class FakeBytes final : public DeviceBytes {
 public:
  FakeBytes(FakeDevice& device, std::string bytes) : device_(device), bytes_(std::move(bytes)) {}

  std::string copy_to_host(const std::vector<Copy>& copies) const override {
    ++device_.batches;
    for (const auto& copy : copies) {
      const std::string& bytes = static_cast<const FakeBytes&>(*copy.from).bytes_;
      std::memcpy(copy.to, bytes.data(), bytes.size());
    }
    return device_.failure;
  }
  std::shared_ptr<void> pin(void* memory, std::size_t size) const override {
    ++device_.pins;
    device_.pinned[memory] = size;
    return {memory, [device = &device_](void* held) { device->pinned.erase(held); }};
  }

 private:
  FakeDevice& device_;
  std::string bytes_;
};

Tensor on_device(FakeDevice& device, const std::string& bytes) {
  return Tensor::on_device(DType::kU8, {static_cast<std::int64_t>(bytes.size())},
                           std::make_shared<FakeBytes>(device, bytes));
}

Dict device_state(FakeDevice& device, const std::string& bytes) {
  return {{"a", on_device(device, bytes)}, {"b", on_device(device, bytes + "b")}, {"c", Tensor::scalar(1.0F)}};
}

Dict host_state(const std::string& bytes) {
  auto tensor = [](const std::string& text) { return Tensor::of(std::vector<std::uint8_t>(text.begin(), text.end())); };
  return {{"a", tensor(bytes)}, {"b", tensor(bytes + "b")}, {"c", Tensor::scalar(1.0F)}};
}

}  // namespace

TEST_CASE("tensors of a device are copied at once into memory that is pinned while its size stays") {
  TempDir folder;
  FakeDevice device;
  {
    SnapshotPool pool;
    for (int round = 0; round < 3; ++round) {
      const std::string bytes = std::string(100, static_cast<char>('a' + round));
      const Dict state = device_state(device, bytes);
      REQUIRE(pool.take(state).value()->write(folder / "s").ok());
      CHECK(device.batches == round + 1);
      CHECK(load_state(folder / "s").value() == host_state(bytes));
      CHECK(state["a"].as_tensor().on_device() != nullptr);  // no other copy was made
    }
    CHECK(device.pins == 1);
    CHECK(device.pinned.size() == 1);
    // Another size has other pages.
    REQUIRE(pool.take(device_state(device, "short")).ok());
    CHECK(device.pins == 2);
    CHECK(device.pinned.size() == 1);
    device.failure = "the device is lost";
    CHECK(pool.take(device_state(device, "x")).error().message().find("the device is lost") != std::string::npos);
  }
  CHECK(device.pinned.empty());
}

TEST_CASE("a state that is saved without a snapshot is copied from its device at once") {
  TempDir folder;
  FakeDevice device;
  const Dict state = device_state(device, "bytes");
  REQUIRE(save_state(folder / "s", state).ok());
  CHECK(device.batches == 1);
  CHECK(load_state(folder / "s").value() == host_state("bytes"));
  CHECK(state == host_state("bytes"));  // already in host memory
  CHECK(device.batches == 1);
  CHECK(device.pins == 0);
  const Tensor alone = on_device(device, "x");
  CHECK(alone.values<std::uint8_t>()[0] == 'x');
  CHECK(alone.on_device() == nullptr);
  CHECK(device.batches == 2);
  device.failure = "the device is lost";
  CHECK(save_state(folder / "s", device_state(device, "y")).error().message().find("the device is lost") !=
        std::string::npos);
  CHECK_THROWS_WITH(on_device(device, "z").data(), "the device is lost");
}

}  // namespace snapshot_test
