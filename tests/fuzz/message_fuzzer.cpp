#include "fuzz/fuzzer.h"
#include "unit/wire/message_samples.h"
#include "wire/message.h"

namespace message_fuzzer {

using namespace trireme::wire;

void fuzz(const std::uint8_t* data, std::size_t size) {
  auto message = decode(as_text(data, size));
  if (!message) {
    expect(!message.error().message().empty(), "an error has a message");
    return;
  }
  expect(name_of(*message) != nullptr, "a decoded message has a name");
  // Not compared as messages: a NaN equals nothing.
  const std::string encoded = encode(*message);
  auto again = decode(encoded);
  expect(again.ok(), "a decoded message can be encoded");
  expect(encode(*again) == encoded, "and is equal after a round trip");
}

std::vector<std::string> seeds() {
  std::vector<std::string> made;
  for (const auto& message : testing::sample_messages()) made.push_back(encode(message));
  return made;
}

TRIREME_FUZZER(message);

}  // namespace message_fuzzer
