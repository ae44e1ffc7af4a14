#include "agent/checkpoint_memory.h"

#include <doctest/doctest.h>

namespace checkpoint_memory_test {

using namespace trireme;
using agent::CheckpointMemory;
using agent::copy_targets;
using Name = CheckpointMemory::Name;

namespace {

CheckpointMemory::Content content(CheckpointMemory& memory, const std::string& text) {
  auto room = memory.make_room(static_cast<std::int64_t>(text.size()), 1000).value();
  *room = text;
  return room;
}

void add(CheckpointMemory& memory, std::int64_t index, const std::string& file, int attempt, const std::string& text,
         int other = 0) {
  REQUIRE(memory.add({{"run", index, file}, attempt, content(memory, text), other}));
}

std::vector<std::string> without_copy(const CheckpointMemory& memory, const std::set<int>& agents) {
  std::vector<std::string> names;
  for (const auto& each : memory.without_copy(agents)) names.push_back(each.name.text());
  return names;
}

using Names = std::vector<std::string>;

template <typename T>
std::string message_of(const base::Result<T>& result) {
  return result ? "" : result.error().message();
}

}  // namespace

TEST_CASE("files in memory are named by run, report and path") {
  const auto name = Name::parse("run-7f/12/rank_1/state.json").value();
  CHECK(name == Name{"run-7f", 12, "rank_1/state.json"});
  CHECK(name.text() == "run-7f/12/rank_1/state.json");
  CHECK(Name::parse("run/12/").value().file == "");
  for (const char* invalid : {"", "run", "run/12", "run/x/file", "run/1x/file", "/12/file"}) {
    CAPTURE(invalid);
    CHECK_FALSE(Name::parse(invalid));
  }
}

TEST_CASE("memory is bounded, and free when the last reader is done") {
  CheckpointMemory memory;
  add(memory, 0, "a", 0, std::string(600, 'a'));
  CHECK(memory.used() == 600);
  CHECK(message_of(memory.make_room(401, 1000)) ==
        "no room for 0.0 MB: checkpoints in its memory have 0.0 MB of 0.0 MB (CheckpointConfig.node_memory_gb)");
  CHECK(memory.used() == 600);
  auto reader = memory.find({"run", 0, "a"});
  memory.drop("run", 1);
  CHECK(memory.find({"run", 0, "a"}) == nullptr);
  CHECK(memory.used() == 600);
  reader.reset();
  CHECK(memory.used() == 0);
  CHECK(memory.make_room(1000, 1000));
  CHECK_FALSE(memory.make_room(-1, 1000));
  CHECK(memory.make_room(1, -1));  // a quarter of this machine's memory
}

TEST_CASE("a file that is stored again replaces the earlier one") {
  CheckpointMemory memory;
  add(memory, 0, "a", 0, "12345");
  add(memory, 0, "a", 0, "123");
  CHECK(*memory.find({"run", 0, "a"}) == "123");
  CHECK(memory.used() == 3);
}

TEST_CASE("a later attempt replaces all files of a checkpoint, an earlier one comes too late") {
  CheckpointMemory memory;
  add(memory, 4, "rank_0", 0, "old");
  add(memory, 4, "rank_1", 0, "old");
  add(memory, 3, "rank_1", 0, "old");
  add(memory, 4, "rank_0", 1, "new");
  CHECK(memory.list("run", 4).attempt == 1);
  CHECK(memory.list("run", 4).sizes == std::map<std::string, std::int64_t>{{"rank_0", 3}});
  CHECK(memory.list("run", 3).sizes.size() == 1);
  CHECK(message_of(memory.add({{"run", 4, "rank_1"}, 0, content(memory, "late"), 0})) ==
        "attempt 0 is over; attempt 1 has stored files of this checkpoint");
  CHECK(memory.list("other", 4).sizes.empty());
}

TEST_CASE("files are copied again when the other holder is gone") {
  CheckpointMemory memory;
  add(memory, 0, "a", 0, "1", 2);
  add(memory, 0, "b", 0, "2", 3);
  add(memory, 1, "c", 1, "3");
  CHECK(without_copy(memory, {2, 3}) == Names{"run/1/c"});
  CHECK(without_copy(memory, {3}) == Names{"run/0/a", "run/1/c"});
  memory.set_other({"run", 0, "a"}, 0, 3);
  memory.set_other({"run", 1, "c"}, 0, 3);  // of an earlier attempt
  memory.set_other({"run", 9, "c"}, 0, 3);  // dropped meanwhile
  CHECK(without_copy(memory, {3}) == Names{"run/1/c"});
}

TEST_CASE("copies go to the next agent of the ring, or to one after it") {
  CHECK(copy_targets(2, {1, 3, 5}) == std::vector<int>{3, 5, 1});
  CHECK(copy_targets(5, {1, 3}) == std::vector<int>{1, 3});
  CHECK(copy_targets(1, {}) == std::vector<int>{});
}

}  // namespace checkpoint_memory_test
