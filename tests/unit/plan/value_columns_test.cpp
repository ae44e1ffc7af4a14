#include <doctest/doctest.h>

#include <numeric>

#include "trireme/data.h"
#include "unit/error_of.h"

namespace dataset_columns_test {

using trireme::Batch;
using trireme::Dataset;
using trireme::Dict;
using trireme::List;
using trireme::Tensor;
using trireme::Value;
using trireme::tests::error_of;
namespace data = trireme::data;

namespace {

Dataset squares(std::int64_t rows) {
  return data::range(rows).map_batches([](const Batch& batch) -> Dict {
    std::vector<std::int64_t> made;
    for (const std::int64_t id : batch["id"].values<std::int64_t>()) made.push_back(id * id);
    return {{"square", Tensor::of(made)}};
  });
}

}  // namespace

TEST_CASE("zip works for any fragments") {
  const auto both = data::range(150'000).zip(squares(150'000).repartition(7));
  CHECK(both.columns() == std::vector<std::string>{"id", "square"});
  CHECK(both.count() == 150'000);
  std::int64_t next = 0;
  for (const auto& batch : both.iter_batches({.batch_size = 4096})) {
    const auto ids = batch["id"].values<std::int64_t>();
    const auto others = batch["square"].values<std::int64_t>();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      REQUIRE(ids[i] == next++);
      REQUIRE(others[i] == ids[i] * ids[i]);
    }
  }
  CHECK(next == 150'000);
  // From the middle, as one of several workers reads it.
  CHECK(both.split(3)[1].take(1)[0]["square"].as_int() == std::int64_t{50'000} * 50'000);
  CHECK(data::range(0).zip(data::range(0)).count() == 0);
}

TEST_CASE("zip numbers duplicate names, and a shuffle is applied first") {
  const auto three = data::range(3).zip(data::range(3)).zip(data::range(3));
  CHECK(three.columns() == std::vector<std::string>{"id", "id_1", "id_2"});
  CHECK(three.take_all()[2] == Dict{{"id", 2}, {"id_1", 2}, {"id_2", 2}});
  const auto mixed = data::range(100).random_shuffle({.seed = 2});
  std::vector<std::int64_t> order;
  for (auto& row : mixed.iter_rows()) order.push_back(row["id"].as_int());
  const auto rows = mixed.zip(data::range(100)).take_all();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    REQUIRE(rows[i]["id"].as_int() == order[i]);
    REQUIRE(rows[i]["id_1"].as_int() == static_cast<std::int64_t>(i));
  }
  CHECK(error_of([] { data::range(3).zip(data::range(4)).count(); }) ==
        "zip: one dataset has 3 rows and the other 4; limit() makes them equal");
}

TEST_CASE("functions add columns") {
  const auto ids = data::range(3000);
  const auto doubled = ids.add_column("twice", [](const Batch& batch) -> Value {
    List values;
    for (auto id : batch["id"].values<std::int64_t>()) values.emplace_back(id * 2);
    return values;
  });
  CHECK(doubled.columns() == std::vector<std::string>{"id", "twice"});
  CHECK(doubled.count() == 3000);
  CHECK(doubled.take_all()[2999] == Dict{{"id", 2999}, {"twice", 5998}});
  // One value for all rows, and a replaced column.
  CHECK(ids.add_column("kind", [](const Batch&) { return "a"; }).take(1)[0] == Dict{{"id", 0}, {"kind", "a"}});
  const auto replaced = doubled.add_column("id", [](const Batch& batch) -> Value { return batch["twice"]; });
  CHECK(replaced.columns() == std::vector<std::string>{"id", "twice"});
  CHECK(replaced.take(3)[2]["id"] == Value(4));
  CHECK(error_of([&] {
          ids.add_column("x", [](const Batch&) -> Value { return List{1, 2}; }).take(1);
        }).find("add_column(x): range(3000) from 0: the function returned 2 values for 1024 rows, rows 0 to 1023") ==
        0);
  CHECK(error_of([&] {
          ids.add_column("x", [](const Batch&) -> Value { throw std::runtime_error("no"); }).columns();
        }).find("add_column(x): range(3000) from 0: row 0: no") == 0);
}

TEST_CASE("take_batch returns the first rows") {
  CHECK(data::range(100).take_batch().rows() == 20);
  const auto across = data::range(70'000).repartition(7000).take_batch(25);
  CHECK(across.rows() == 25);
  const auto ids = across["id"].values<std::int64_t>();
  for (std::size_t i = 0; i < ids.size(); ++i) REQUIRE(ids[i] == static_cast<std::int64_t>(i));
  CHECK(data::range(3).take_batch(10).rows() == 3);
  const auto mixed = data::range(1000).random_shuffle({.seed = 3});
  CHECK(mixed.take_batch(5)["id"].values<std::int64_t>()[4] == mixed.take(5)[4]["id"].as_int());
  CHECK(mixed.take(5).size() == 5);
  CHECK(error_of([] { data::range(0).take_batch(); }) == "take_batch: the dataset is empty");
  CHECK(error_of([] { data::range(9).take_batch(0); }).find("take_batch(0): expected a number of rows") == 0);
}

TEST_CASE("stats describes a dataset") {
  CHECK(data::range(1'000'000).select_columns({"id"}).random_shuffle({.seed = 3}).stats() ==
        "range(1000000) -> select_columns(id)\n16 fragments, 1,000,000 rows\nshuffled: rows, seed 3");
  CHECK(data::range(10).filter([](const Dict& row) { return row["id"].as_int() > 3; }).stats() ==
        "range(10) -> filter()\n1 fragment, rows not counted");
}

}  // namespace dataset_columns_test
