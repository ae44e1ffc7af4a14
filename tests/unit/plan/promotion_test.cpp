#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "data/arrow_c.h"
#include "trireme/data.h"
#include "unit/error_of.h"

// Types of a function's later rows, as tests/python/test_data_promotion.py tests them in Python: promoted if nothing is
// lost, an error otherwise, never cast silently.

namespace promotion_test {

using trireme::Batch;
using trireme::Dataset;
using trireme::Dict;
using trireme::List;
using trireme::Tensor;
using trireme::Value;
using trireme::tests::error_of;
namespace data = trireme::data;

namespace {

constexpr std::int64_t kRows = 3000;  // more than a trial call sees
constexpr std::int64_t kLate = 2500;

Dataset late(const Value& first, const Value& last, std::int64_t fragments = 6) {
  return data::range(kRows).repartition(fragments).map([=](const Dict& row) -> Dict {
    return {{"id", row["id"]}, {"v", row["id"].as_int() >= kLate ? last : first}};
  });
}

struct Case {
  const char* name;
  Value first;
  Value last;
  const char* type;
  Value first_becomes;
};

std::vector<Case> promoted() {
  return {{"int, float", 1, 1.5, "v: double\n", 1.0},
          {"null, int", nullptr, 5, "v: int64\n", nullptr},
          {"empty list, list", List{}, List{1}, "v: large_list<int64>\n", List{}},
          {"lists of int, of float", List{1}, List{1.5}, "v: large_list<double>\n", List{1.0}},
          {"later key", Dict{{"a", 1}}, Dict{{"a", 1}, {"b", 2}}, "v: struct<int64, int64>\n",
           Dict{{"a", 1}, {"b", nullptr}}}};
}

}  // namespace

TEST_CASE("later rows are promoted where nothing is lost") {
  for (const auto& each : promoted()) {
    CAPTURE(each.name);
    for (const auto& rows : {late(each.first, each.last), late(each.first, each.last).materialize(),
                             late(each.first, each.last).random_shuffle({.seed = 1}).split(2)[1]}) {
      const auto all = rows.take_all();
      CHECK(rows.schema().find(each.type) != std::string::npos);
      for (const auto& row : all) {
        const Value& expected = row["id"].as_int() >= kLate ? each.last : each.first_becomes;
        REQUIRE(row["v"] == expected);
        REQUIRE(std::string(row["v"].type_name()) == expected.type_name());
      }
    }
  }
}

TEST_CASE("a running pass continues with wider types, without losing or repeating a row") {
  for (const auto& rows : {late(1, 1.5), late(1, 1.5).random_shuffle({.seed = 1}), late(1, 1.5).drop_columns({})}) {
    std::vector<bool> seen(kRows);
    for (const auto& batch : rows.iter_batches({.batch_size = 100})) {
      for (const auto& row : batch.to_rows()) {
        const auto id = static_cast<std::size_t>(row["id"].as_int());
        REQUIRE_FALSE(seen[id]);
        seen[id] = true;
        REQUIRE(row["v"].as_double() == (id >= kLate ? 1.5 : 1.0));
      }
    }
    CHECK(std::count(seen.begin(), seen.end(), true) == kRows);
  }
}

TEST_CASE("types without a common one are refused, with column, types and row") {
  const auto message = [](const Value& first, const Value& last) {
    return error_of([&] { late(first, last, 1).take_all(); });
  };
  const std::string advice = " in the rows before: convert one of them, or drop the column";
  CHECK(message(true, 5).find("column 'v' is int64 in row 2500 and bool" + advice) != std::string::npos);
  CHECK(message("s", 5).find("column 'v' is int64 in row 2500 and string" + advice) != std::string::npos);
  CHECK(message("s", trireme::Bytes{"s"}).find("column 'v' is binary in row 2500 and string" + advice) !=
        std::string::npos);
  CHECK(
      message(List{"a"}, List{1}).find("column 'v' is list<item: int64> in row 2500 and list<item: string>" + advice) !=
      std::string::npos);
}

TEST_CASE("integers that a float cannot hold are refused") {
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  const std::string why =
      ", and double in the others: Integer value 9007199254740993 not in range: -9007199254740992 to 9007199254740992; "
      "convert one of them, or drop the column";
  CHECK(error_of([&] { late(large, 1.5, 1).take_all(); }).find("column 'v' is int64 in row 0" + why) !=
        std::string::npos);
  CHECK(error_of([&] { late(1.5, large, 1).take_all(); }).find("column 'v' is int64 in row 2500" + why) !=
        std::string::npos);
  CHECK(late(large, nullptr).take_all()[0]["v"] == Value(large));
}

TEST_CASE("columns of batches are promoted") {
  const auto halves = data::range(kRows).repartition(3).map_batches(
      [](const Batch& batch) -> Dict {
        const auto ids = batch["id"].values<std::int64_t>();
        std::vector<std::int64_t> whole(ids.begin(), ids.end());
        if (ids[0] < 2000) return {{"x", Tensor::of(whole)}};
        std::vector<float> half(ids.begin(), ids.end());
        return {{"x", Tensor::of(half)}};
      },
      {.batch_size = 1000});
  const auto rows = halves.take_all();
  for (std::size_t i = 0; i < rows.size(); ++i) REQUIRE(rows[i]["x"] == Value(static_cast<double>(i)));
  const auto added = data::range(kRows).repartition(3).add_column("y", [](const Batch& batch) -> Value {
    return batch["id"].values<std::int64_t>()[0] < 2000 ? Value(1) : Value(1.5);
  });
  CHECK(added.take_all()[0] == Dict{{"id", 0}, {"y", 1.0}});
  CHECK(added.take_all()[2999] == Dict{{"id", 2999}, {"y", 1.5}});
  const auto narrow = data::from_columns({{"u", Tensor::of(std::vector<std::uint8_t>{200})}});
  CHECK(narrow.map_batches([](const Batch& batch) -> Dict { return {{"u", batch["u"]}}; }).schema() == "u: uint8\n");
}

TEST_CASE("tensors of different shapes are ragged, as in Python") {
  const auto made = data::range(100).repartition(3).map([](const Dict& row) -> Dict {
    const std::int64_t id = row["id"].as_int();
    if (id == 50) return {{"t", nullptr}};
    const std::int64_t height = id < 60 ? 2 : 3;
    return {{"t", Tensor::of(std::vector<float>(static_cast<std::size_t>(2 * height), static_cast<float>(id)),
                             {height, 2})}};
  });
  for (const auto& rows : {made, made.materialize(), made.random_shuffle({.seed = 1})}) {
    std::vector<float> sums;
    for (const auto& row : rows.take_all()) {
      const auto* tensor = row["t"].get_if<Tensor>();
      if (!tensor) continue;
      const auto values = tensor->values<float>();
      REQUIRE(tensor->shape() == std::vector<std::int64_t>{values[0] < 60 ? 2 : 3, 2});
      REQUIRE(std::all_of(values.begin(), values.end(), [&](float each) { return each == values[0]; }));
      sums.push_back(values[0]);
    }
    std::sort(sums.begin(), sums.end());
    REQUIRE(sums.size() == 99);
    CHECK((sums.front() == 0 && sums[50] == 51 && sums.back() == 99));
  }
}

TEST_CASE("columns and missing keys of later rows") {
  const auto rows = data::range(kRows).repartition(3).map([](const Dict& row) -> Dict {
    if (row["id"].as_int() < kLate) return {{"a", row["id"]}};
    return {{"b", row["id"]}};
  });
  const auto all = rows.take_all();
  CHECK(all[0] == Dict{{"a", 0}, {"b", nullptr}});
  CHECK(all[2999] == Dict{{"a", nullptr}, {"b", 2999}});
  CHECK(rows.select_columns({"a"}).count() == kRows);
}

TEST_CASE("a column without values has the type of the source, and a dataset without rows its columns") {
  const auto text = data::from_items({{{"s", nullptr}, {"n", 1}}, {{"s", "x"}, {"n", 2}}});
  const auto same = [](const Dict& row) { return row; };
  CHECK(text.limit(1).map(same).schema() == "s: large_string\nn: int64\n");
  CHECK(text.map(same).take_all()[1]["s"] == Value("x"));
  const auto none = text.limit(0);
  CHECK(none.map(same).columns() == std::vector<std::string>{"s", "n"});
  CHECK(none.map(same).take_all().empty());
  CHECK(none.flat_map([](const Dict& row) { return std::vector<Dict>{row}; }).columns().size() == 2);
}

TEST_CASE("a stream that was given its types names the column that needs a wider one") {
  ArrowArrayStream stream;
  late(1, 1.5, 1).export_to(&stream);
  int code = 0;
  while (code == 0) {
    ArrowArray array{};
    code = stream.get_next(&stream, &array);
    if (code == 0 && !array.release) break;
    if (array.release) array.release(&array);
  }
  REQUIRE(code != 0);
  CHECK(std::string(stream.get_last_error(&stream)).find("column 'v': double; materialize() the dataset first") !=
        std::string::npos);
  stream.release(&stream);
}

}  // namespace promotion_test
