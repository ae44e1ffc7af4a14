#include "trireme/value.h"

#include <doctest/doctest.h>

#include <limits>

namespace value_test {

using trireme::Bytes;
using trireme::Dict;
using trireme::List;
using trireme::Value;
using trireme::ValueError;

TEST_CASE("a value holds any of its types") {
  CHECK(Value().is_null());
  CHECK(Value(true).get<bool>());
  CHECK(Value(3).get<int>() == 3);
  CHECK(Value(std::uint8_t{7}).get<std::int64_t>() == 7);
  CHECK(Value(2.5f).get<double>() == 2.5);
  CHECK(Value("text").get<std::string>() == "text");
  CHECK(Value(Bytes{"\0x"}).get<Bytes>() == Bytes{"\0x"});
  CHECK(Value(List{1, "a"}).get<List>().size() == 2);
  CHECK(Value(Dict{{"a", 1}}).get<Dict>().at("a") == Value(1));
}

TEST_CASE("every type has a name") {
  CHECK(std::string(Value().type_name()) == "null");
  CHECK(std::string(Value(false).type_name()) == "bool");
  CHECK(std::string(Value(1).type_name()) == "int");
  CHECK(std::string(Value(1.0).type_name()) == "float");
  CHECK(std::string(Value("").type_name()) == "string");
  CHECK(std::string(Value(Bytes{}).type_name()) == "bytes");
  CHECK(std::string(Value(List{}).type_name()) == "list");
  CHECK(std::string(Value(Dict{}).type_name()) == "dict");
}

TEST_CASE("an int is accepted as a float, nothing else is converted") {
  CHECK(Value(3).get<double>() == 3.0);
  CHECK(Value(3).is_number());
  CHECK(Value(3.0).is_number());
  CHECK_FALSE(Value(true).is_number());
  CHECK_THROWS_AS(Value(3.0).get<int>(), ValueError);
  CHECK_THROWS_AS(Value(true).get<int>(), ValueError);
  CHECK_THROWS_AS(Value(1).get<bool>(), ValueError);
  CHECK_THROWS_WITH(Value("x").get<double>(), "expected a float, got string: \"x\"");
}

TEST_CASE("values compare by type and content") {
  CHECK(Value(1) == Value(1));
  CHECK_FALSE(Value(1) == Value(1.0));
  CHECK_FALSE(Value(1) == Value(true));
  CHECK_FALSE(Value("a") == Value(Bytes{"a"}));
  CHECK(Value(List{1, List{2}}) == Value(List{1, List{2}}));
  double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(Value(nan) == Value(nan));
}

TEST_CASE("nested values are accessed by key and index") {
  const Value value = Dict{{"a", Dict{{"b", List{10, 20}}}}};
  CHECK(value["a"]["b"][0].get<int>() == 10);
  CHECK(value["a"]["b"][1].get<int>() == 20);
  CHECK_THROWS_WITH(value["a"]["b"][2], "index 2 is out of range for a list of size 2");
  CHECK_THROWS_AS(value["a"]["b"]["c"], ValueError);
}

TEST_CASE("a dict keeps insertion order and compares without it") {
  Dict dict;
  dict["z"] = 1;
  dict["a"] = 2;
  dict["z"] = 3;
  REQUIRE(dict.size() == 2);
  CHECK(dict.begin()->first == "z");
  CHECK(dict.at("z") == Value(3));
  CHECK(dict == Dict{{"a", 2}, {"z", 3}});
  CHECK_FALSE(dict == Dict{{"a", 2}});
  CHECK_FALSE(dict == Dict{{"a", 2}, {"b", 3}});
  CHECK(Dict{{"a", 1}, {"a", 2}} == Dict{{"a", 2}});  // the last one wins, as in Python
}

TEST_CASE("absent keys") {
  Dict dict = {{"epochs", 3}, {"lr", 0.1}};
  const Dict& read_only = dict;
  CHECK_THROWS_WITH(read_only["epoch"], "no key named 'epoch'; did you mean 'epochs'? (keys: epochs, lr)");
  CHECK_THROWS_WITH(Dict{}.at("x"), "no key named 'x' (keys: none)");
  CHECK(dict.find("x") == nullptr);
  CHECK_FALSE(dict.contains("x"));
  CHECK(dict["x"].is_null());  // non-const access adds the key
  CHECK(dict.contains("x"));
  CHECK(dict.erase("x"));
  CHECK_FALSE(dict.erase("x"));
  CHECK(dict.size() == 2);
}

}  // namespace value_test
