#include "fuzz/fuzzer.h"
#include "unit/wire/message_samples.h"
#include "wire/message.h"

using namespace trireme::wire;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto message = decode(as_text(data, size));
  if (!message) {
    expect(!message.error().message().empty(), "an error has a message");
    return 0;
  }
  expect(name_of(*message) != nullptr, "a decoded message has a name");
  // Not compared as messages: a NaN equals nothing.
  const std::string encoded = encode(*message);
  auto again = decode(encoded);
  expect(again.ok(), "a decoded message can be encoded");
  expect(encode(*again) == encoded, "and is equal after a round trip");
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (const auto& message : testing::sample_messages()) seeds.push_back(encode(message));
  return seeds;
}
