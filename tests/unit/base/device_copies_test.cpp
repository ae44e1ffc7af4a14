#include "base/device_copies.h"

#include <doctest/doctest.h>

#include <cstring>

namespace device_copies_test {

using namespace trireme;
using namespace trireme::base;

namespace {

struct Log {
  std::vector<std::string> calls;
  std::string failure;
};

// Two classes of bytes, as of two frameworks.
template <char kKind>
class Bytes final : public DeviceBytes {
 public:
  Bytes(Log& log, char byte) : log_(log), byte_(byte) {}

  std::string copy_to_host(const std::vector<Copy>& copies) const override {
    std::string call{kKind};
    for (const auto& copy : copies) {
      const char byte = static_cast<const Bytes&>(*copy.from).byte_;
      std::memcpy(copy.to, &byte, 1);
      call += byte;
    }
    log_.calls.push_back(call);
    return log_.failure;
  }
  std::shared_ptr<void> pin(void*, std::size_t) const override {
    log_.calls.push_back(std::string("prepare ") + kKind);
    return nullptr;
  }

 private:
  Log& log_;
  char byte_;
};

}  // namespace

TEST_CASE("copies from devices are made at once for each kind of device") {
  Log log;
  std::string memory(3, ' ');
  DeviceCopies copies;
  copies.add(std::make_shared<Bytes<'x'>>(log, '1'), memory.data());
  copies.add(std::make_shared<Bytes<'y'>>(log, '2'), memory.data() + 1);
  copies.add(std::make_shared<Bytes<'x'>>(log, '3'), memory.data() + 2);
  CHECK(copies.run([](const DeviceBytes& kind) { (void)kind.pin(nullptr, 0); }).empty());
  CHECK(memory == "123");
  REQUIRE(log.calls.size() == 4);
  // The order of the kinds is not specified.
  const std::size_t x = log.calls[0] == "prepare x" ? 0 : 2;
  CHECK(log.calls[x] == "prepare x");
  CHECK(log.calls[x + 1] == "x13");
  CHECK(log.calls[2 - x] == "prepare y");
  CHECK(log.calls[3 - x] == "y2");

  log.failure = "the device is lost";
  CHECK(copies.run() == "the device is lost");
  CHECK(log.calls.size() == 5);
  CHECK(DeviceCopies().run().empty());
}

}  // namespace device_copies_test
