#include "control/key_value_store.h"

#include <doctest/doctest.h>

#include <limits>

namespace key_value_store_test {

using trireme::control::KeyValueStore;

namespace {

using Answers = std::vector<std::string>;

KeyValueStore::Answer into(Answers& answers) {
  return [&answers](const std::string& value) { answers.push_back(value); };
}

}  // namespace

TEST_CASE("get returns the value, if set before or after") {
  KeyValueStore store;
  Answers answers;
  store.get(0, "a", into(answers));
  CHECK(answers.empty());
  store.set("b", "other");
  CHECK(answers.empty());
  store.set("a", std::string("1\0x", 3));
  CHECK(answers == Answers{std::string("1\0x", 3)});
  store.set("a", "2");
  store.get(1, "a", into(answers));
  CHECK(answers.back() == "2");
  CHECK(answers.size() == 2);
  CHECK(store.size() == 2);
}

TEST_CASE("a wait needs all of its keys") {
  KeyValueStore store;
  Answers answers;
  store.wait(0, {"a", "b", "a"}, into(answers));
  store.set("b", "2");
  CHECK(answers.empty());
  store.set("a", "1");
  CHECK(answers == Answers{"1"});
  store.wait(0, {}, into(answers));
  CHECK(answers == Answers{"1", ""});
  store.wait(0, {"b", "a"}, into(answers));
  CHECK(answers.back() == "2");
}

TEST_CASE("multi_get answers with all values when all keys are set, and waits like any other request") {
  KeyValueStore store;
  std::vector<std::vector<std::string>> answers;
  auto into_lists = [&](const std::vector<std::string>& values) { answers.push_back(values); };
  store.set("a", std::string("1\0", 2));
  store.multi_get({3, 7, 30.0}, {"b", "a"}, into_lists);
  CHECK(answers.empty());
  REQUIRE(store.waits().size() == 1);
  CHECK(store.waits()[0].asker.owner == 3);
  CHECK(store.waits()[0].asker.request == 7);
  CHECK(store.waits()[0].missing == std::vector<std::string>{"b"});
  const auto before = store.changes();
  store.append("b", "2");
  CHECK(store.changes() > before);
  CHECK(answers == std::vector<std::vector<std::string>>{{"2", std::string("1\0", 2)}});
  CHECK(store.waits().empty());
  store.multi_get(0, {}, into_lists);
  CHECK(answers.back().empty());
  store.multi_get(4, {"c"}, into_lists);
  store.forget(4);
  store.set("c", "3");
  CHECK(answers.size() == 2);
}

TEST_CASE("append adds to the end") {
  KeyValueStore store;
  Answers answers;
  store.append("a", std::string("\0x", 2));
  store.append("a", "");
  store.append("a", "y");
  store.get(0, "a", into(answers));
  CHECK(answers == Answers{std::string("\0xy", 3)});
}

TEST_CASE("a key that is deleted during a wait is not restored") {
  KeyValueStore store;
  Answers answers;
  store.set("a", "1");
  store.wait(0, {"a", "b"}, into(answers));
  CHECK(store.erase("a"));
  store.set("b", "2");
  CHECK(answers.size() == 1);
  CHECK(store.size() == 1);
  CHECK_FALSE(store.erase("a"));
}

TEST_CASE("an answer may use the store") {
  KeyValueStore store;
  Answers answers;
  store.get(0, "a", [&](const std::string&) {
    store.set("b", "from the answer");
    store.erase("a");
    store.get(0, "a", into(answers));
  });
  store.get(1, "b", into(answers));
  store.set("a", "1");
  CHECK(answers == Answers{"from the answer"});
  store.set("a", "2");
  CHECK(answers == Answers{"from the answer", "2"});
}

TEST_CASE("add counts in decimal text") {
  KeyValueStore store;
  Answers answers;
  store.get(0, "n", into(answers));
  CHECK(*store.add("n", 5) == 5);
  CHECK(answers == Answers{"5"});
  CHECK(*store.add("n", -7) == -2);
  CHECK(*store.add("n", 0) == -2);
  for (const char* text : {"", "x", "1x", "1.5", " 1", "99999999999999999999"}) {
    store.set("t", text);
    CHECK(store.add("t", 1).error().message() == "store key 't' does not hold a number to add to");
  }
  store.set("n", std::to_string(std::numeric_limits<std::int64_t>::max()));
  CHECK(store.add("n", 1).error().message() == "store key 'n' would overflow");
}

TEST_CASE("compare and set") {
  struct Row {
    std::optional<std::string> held;
    std::string expected;
    std::string answer;
    std::optional<std::string> after;
  };
  for (const Row& row :
       {Row{std::nullopt, "", "new", "new"}, Row{std::nullopt, "x", "x", std::nullopt}, Row{"old", "old", "new", "new"},
        Row{"old", "x", "old", "old"}, Row{"old", "", "old", "old"}, Row{"", "", "new", "new"}}) {
    KeyValueStore store;
    if (row.held) store.set("k", *row.held);
    CHECK(store.compare_set("k", row.expected, "new") == row.answer);
    Answers after;
    store.get(0, "k", into(after));
    CHECK(after == (row.after ? Answers{*row.after} : Answers{}));
  }
  KeyValueStore store;
  Answers answers;
  store.get(0, "k", into(answers));
  store.compare_set("k", "", "set");
  CHECK(answers == Answers{"set"});
}

TEST_CASE("a rank that has disconnected is not answered") {
  KeyValueStore store;
  Answers gone;
  Answers here;
  store.get(1, "a", into(gone));
  store.wait(1, {"a", "b"}, into(gone));
  store.get(2, "a", into(here));
  store.forget(1);
  store.set("a", "1");
  store.set("b", "1");
  CHECK(gone.empty());
  CHECK(here == Answers{"1"});
  store.get(2, "c", into(here));
  store.clear();
  CHECK(store.size() == 0);
  store.set("c", "1");
  CHECK(here.size() == 1);
}

TEST_CASE("the pending waits") {
  KeyValueStore store;
  std::vector<std::string> answers;
  store.set("a", "1");
  const auto before = store.changes();
  store.wait({1, 7, 60.0}, {"a", "b", "c"}, into(answers));
  store.get({2, 8, 0.5}, "c", into(answers));
  auto waits = store.waits();
  REQUIRE(waits.size() == 2);
  CHECK(waits[0].asker.owner == 1);
  CHECK(waits[0].asker.request == 7);
  CHECK(waits[0].asker.timeout_s == 60.0);
  CHECK(waits[0].missing == std::vector<std::string>{"b", "c"});
  CHECK(waits[1].missing == std::vector<std::string>{"c"});
  CHECK(store.changes() == before);
  store.set("c", "3");
  CHECK(store.changes() != before);
  waits = store.waits();
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].missing == std::vector<std::string>{"b"});
}

}  // namespace key_value_store_test
