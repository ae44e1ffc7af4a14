#include "wire/message.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "base/json.h"
#include "unit/wire/message_samples.h"

namespace message_test {

using namespace trireme;
using namespace trireme::wire;
using testing::sample_messages;

TEST_CASE("message round trip") {
  const auto samples = sample_messages();
  std::set<std::size_t> kinds;
  for (const auto& message : samples) {
    CAPTURE(name_of(message));
    kinds.insert(message.index());
    auto back = decode(encode(message));
    REQUIRE(back);
    CHECK(*back == message);
  }
  CHECK(kinds.size() == std::variant_size_v<Message> - 1);
}

TEST_CASE("numbers that JSON cannot represent survive") {
  Report report;
  const double infinity = std::numeric_limits<double>::infinity();
  report.metrics = {
      {"a", infinity}, {"b", -infinity}, {"c", std::nan("")}, {"d", std::numeric_limits<std::int64_t>::min()}};
  auto back = decode(encode(report));
  REQUIRE(back);
  const Dict& metrics = std::get<Report>(*back).metrics;
  CHECK(metrics["a"].as_double() == infinity);
  CHECK(metrics["b"].as_double() == -infinity);
  CHECK(std::isnan(metrics["c"].as_double()));
  CHECK(metrics["d"].as_int() == std::numeric_limits<std::int64_t>::min());
}

TEST_CASE("a truncated message is rejected") {
  for (const auto& message : sample_messages()) {
    CAPTURE(name_of(message));
    const std::string payload = encode(message);
    for (std::size_t size = 0; size < payload.size(); ++size) CHECK_FALSE(decode(payload.substr(0, size)));
    CHECK_FALSE(decode(payload + '\0'));
  }
}

TEST_CASE("invalid messages are rejected with a reason") {
  struct Row {
    Value value;
    const char* says;
  };
  const std::vector<Row> rows = {
      {nullptr, "not a message"},
      {"report", "not a message"},
      {List{}, "not a message"},
      {List{"6"}, "without a number"},
      {List{0}, "unknown message 0"},
      {List{1000}, "unknown message 1000"},
      {List{-1}, "unknown message -1"},
      {List{12, 1}, "too many"},
      {List{3}, "Heartbeat: field 'sequence' is missing"},
      {List{3, "one"}, "Heartbeat: field 'sequence': expected int, got str"},
      {List{8, 1.5}, "expected int"},
      {List{11, "why", 1}, "field 'hard': expected bool"},
      {List{16, 1, List{1}}, "element 0: expected str"},
  };
  for (const auto& row : rows) {
    auto decoded = decode(base::to_msgpack(row.value));
    REQUIRE_FALSE(decoded);
    CAPTURE(decoded.error().message());
    CHECK(decoded.error().message().find(row.says) != std::string::npos);
  }
  // A rank that does not fit into an int.
  List hello{1, 1, "run", "worker", std::int64_t{1} << 40, 0, 0, "h", Bytes{}, Bytes{}};
  CHECK(decode(base::to_msgpack(hello)).error().message().find("out of range") != std::string::npos);
  // Endless nesting.
  CHECK_FALSE(decode(std::string(100000, '\x91')));
  // A length without its bytes.
  CHECK_FALSE(decode(std::string("\xdd\xff\xff\xff\xff", 5)));
  CHECK_FALSE(decode(std::string("\xc6\xff\xff\xff\xff", 5)));
}

TEST_CASE("mutated messages are rejected, or decoded and encoded again") {
  std::mt19937 random(11);
  const auto samples = sample_messages();
  int understood = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string payload = encode(samples[random() % samples.size()]);
    for (std::size_t flips = 1 + random() % 4; flips > 0 && !payload.empty(); --flips) {
      payload[random() % payload.size()] = static_cast<char>(random());
    }
    auto decoded = decode(payload);
    if (!decoded) continue;
    ++understood;
    const std::string again = encode(*decoded);
    auto twice = decode(again);
    REQUIRE(twice);
    CHECK(encode(*twice) == again);
  }
  CHECK(understood > 0);
}

TEST_CASE("the message tables can be described") {
  Dict described = describe_messages();
  CHECK(described.size() == std::variant_size_v<Message> - 1);
  std::set<std::int64_t> numbers;
  for (const auto& [name, message] : described) {
    numbers.insert(message["number"].as_int());
    for (const auto& field : message["fields"].as_list()) CHECK_FALSE(field["type"].as_string().empty());
  }
  CHECK(numbers.size() == described.size());
  CHECK(described["Report"]["number"].as_int() == 6);
  CHECK(described["Report"]["fields"][1]["name"].as_string() == "metrics");
}

}  // namespace message_test
