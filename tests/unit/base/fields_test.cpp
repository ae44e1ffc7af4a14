#include "base/fields.h"

#include <doctest/doctest.h>

#include <limits>

namespace trireme::tests {

#define TRIREME_TEST_INNER(FIELD) FIELD(int, depth, 3, "how deep")
TRIREME_STRUCT(Inner, TRIREME_TEST_INNER)

#define TRIREME_TEST_SHIP(FIELD)                               \
  FIELD(std::string, name, "argo", "what it is called")        \
  FIELD(int, oars, 170, "how many")                            \
  FIELD(double, speed, 9.5, "in knots")                        \
  FIELD(bool, at_sea, false, "or in a port")                   \
  FIELD(std::optional<std::string>, port, {}, "where it lies") \
  FIELD(std::vector<int>, crew, {}, "by bench")                \
  FIELD(SHIP_CARGO, cargo, {}, "by good")                      \
  FIELD(Bytes, seal, {}, "of the owner")                       \
  FIELD(Inner, hull, {}, "below the water")
using SHIP_CARGO = std::map<std::string, double>;
TRIREME_STRUCT(Ship, TRIREME_TEST_SHIP)

}  // namespace trireme::tests

namespace trireme::base {
TRIREME_STRUCT_FIELDS(tests::Inner, TRIREME_TEST_INNER)
TRIREME_STRUCT_FIELDS(tests::Ship, TRIREME_TEST_SHIP)
}  // namespace trireme::base

using namespace trireme;
using namespace trireme::base;
using tests::Ship;

namespace {

Ship full_ship() {
  return {.name = "paralus",
          .oars = 174,
          .speed = 10.0,
          .at_sea = true,
          .port = "piraeus",
          .crew = {62, 54, 54},
          .cargo = {{"water", 2.5}},
          .seal = Bytes{"\x01"},
          .hull = {.depth = 4}};
}

std::string refusal(const Dict& dict) {
  auto ship = from_dict<Ship>(dict, "Ship");
  return ship ? "accepted" : ship.error().message();
}

}  // namespace

TEST_CASE("a struct converts to a dict and back") {
  CHECK(from_dict<Ship>(to_dict(full_ship()), "Ship").value() == full_ship());
  CHECK(from_dict<Ship>({}, "Ship").value() == Ship{});
  CHECK(Ship{}.oars == 170);
  Dict dict = to_dict(full_ship());
  CHECK(dict.begin()->first == "name");
  CHECK(dict["hull"] == Value(Dict{{"depth", 4}}));
  CHECK(to_dict(Ship{})["port"].is_null());
  CHECK(field_names<Ship>() ==
        std::vector<std::string>{"name", "oars", "speed", "at_sea", "port", "crew", "cargo", "seal", "hull"});
}

TEST_CASE("a struct converts to a list and back") {
  List list = {"first"};
  append_fields(list, full_ship());
  CHECK(list.size() == 10);
  CHECK(take_fields<Ship>(list, 1).value() == full_ship());
  List longer = list;
  longer.push_back(1);
  CHECK(take_fields<Ship>(longer, 1).error().message() == "1 fields too many");
  list.pop_back();
  CHECK(take_fields<Ship>(list, 1).error().message() == "field 'hull' is missing");
  CHECK(take_fields<Ship>({"x", "many"}, 0).error().message() == "field 'oars': expected int, got string");
}

TEST_CASE("an int is accepted as a float") { CHECK(from_dict<Ship>({{"speed", 9}}, "Ship").value().speed == 9.0); }

TEST_CASE("a type error names the field and the expected type") {
  CHECK(refusal({{"oars", "many"}}) == "Ship.oars: expected int, got string");
  CHECK(refusal({{"oars", 1.0}}) == "Ship.oars: expected int, got float");
  CHECK(refusal({{"oars", true}}) == "Ship.oars: expected int, got bool");
  CHECK(refusal({{"oars", std::numeric_limits<std::int64_t>::max()}}) ==
        "Ship.oars: 9223372036854775807 is out of range");
  CHECK(refusal({{"port", 7}}) == "Ship.port: expected str, got int");
  CHECK(refusal({{"crew", List{1, "x"}}}) == "Ship.crew: element 1: expected int, got string");
  CHECK(refusal({{"cargo", Dict{{"oil", "much"}}}}) == "Ship.cargo: 'oil': expected float, got string");
  CHECK(refusal({{"hull", Dict{{"depth", nullptr}}}}).ends_with("depth: expected int, got null"));
}

TEST_CASE("an unknown field is rejected with a suggestion") {
  std::string message = refusal({{"oar", 3}});
  CHECK(message.find("Ship has no field 'oar'; did you mean 'oars'?") != std::string::npos);
  CHECK(message.find("name, oars, speed") != std::string::npos);
}

TEST_CASE("types are named as in Python") {
  CHECK(Codec<std::optional<std::vector<int>>>::kind() == "list[int] | None");
  CHECK(Codec<std::map<std::string, double>>::kind() == "dict[str, float]");
}
