#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "data/arrays.h"
#include "trireme/context.h"
#include "trireme/data.h"
#include "unit/error_of.h"

namespace dataset_test {

using trireme::Batch;
using trireme::Dataset;
using trireme::Dict;
using trireme::List;
using trireme::Tensor;
using trireme::Value;
using trireme::tests::error_of;
namespace data = trireme::data;

namespace {

std::vector<std::int64_t> ids_of(const std::vector<Dict>& rows) {
  std::vector<std::int64_t> ids;
  for (const auto& row : rows) ids.push_back(row["id"].as_int());
  return ids;
}

std::vector<std::int64_t> ids_of(const Dataset& dataset) { return ids_of(dataset.take_all()); }

// As the pipeline returns them.
std::vector<std::int64_t> iterated(const Dataset& dataset, std::int64_t batch_size = 7) {
  std::vector<std::int64_t> ids;
  for (const auto& batch : dataset.iter_batches({.batch_size = batch_size})) {
    for (auto id : batch["id"].values<std::int64_t>()) ids.push_back(id);
  }
  return ids;
}

std::vector<std::int64_t> up_to(std::int64_t end, std::int64_t begin = 0) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(end - begin));
  std::iota(ids.begin(), ids.end(), begin);
  return ids;
}

std::vector<std::int64_t> sorted(std::vector<std::int64_t> ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

TEST_CASE("values of every kind survive a round trip through a table") {
  const std::vector<Dict> rows = {
      {{"flag", true},
       {"whole", 1},
       {"number", 1},
       {"text", "a"},
       {"bytes", trireme::Bytes{"x"}},
       {"tensor", Tensor::of(std::vector<float>{1, 2, 3, 4}, {2, 2})},
       {"list", List{1, nullptr}},
       {"dict", Dict{{"k", "v"}, {"n", nullptr}}},
       {"none", nullptr}},
      {{"flag", nullptr},
       {"whole", nullptr},
       {"number", 1.5},
       {"text", nullptr},
       {"bytes", nullptr},
       {"tensor", Tensor::of(std::vector<float>{5, 6, 7, 8}, {2, 2})},
       {"list", List{}},
       {"dict", nullptr},
       {"none", nullptr}},
  };
  std::vector<Dict> expected = rows;
  expected[0]["number"] = 1.0;
  const auto dataset = data::from_items(rows);
  CHECK(dataset.take_all() == expected);
  CHECK(dataset.count() == 2);
  CHECK(dataset.columns().size() == 9);
  CHECK(dataset.schema().find("number: double\n") != std::string::npos);
  // Through the pipeline, too.
  std::vector<Dict> through;
  for (auto& row : dataset.iter_rows()) through.push_back(row);
  CHECK(through == expected);
}

TEST_CASE("columns of a batch are tensors without a copy, or an error with the reason") {
  const auto dataset = data::from_columns({{"x", Tensor::of(std::vector<float>{1, 2, 3, 4}, {2, 2})},
                                           {"flag", Tensor::of(std::vector<std::uint8_t>{0, 1})},
                                           {"name", List{"a", "bc"}},
                                           {"hole", List{1, nullptr}}});
  int batches = 0;
  for (const auto& batch : dataset.iter_batches()) {
    ++batches;
    CHECK(batch.rows() == 2);
    CHECK(batch["x"] == Tensor::of(std::vector<float>{1, 2, 3, 4}, {2, 2}));
    CHECK(batch["x"].data() == batch["x"].data());
    CHECK(batch.strings("name")[1] == "bc");
    CHECK_FALSE(batch.find_tensor("name"));
    CHECK(error_of([&] { (void)batch["nam"]; }).find("did you mean 'name'?") != std::string::npos);
    CHECK(error_of([&] { (void)batch["hole"]; }).find("hole") != std::string::npos);
  }
  CHECK(batches == 1);
}

TEST_CASE("mismatching rows are rejected with row and column") {
  CHECK(error_of([] {
          data::from_items({{{"x", 1}}, {{"x", "a"}}});
        }) == "column 'x' is string in row 1 and int64 in the rows before: convert one of them, or drop the column");
  CHECK(data::from_items({{{"x", 1}}, {{"y", 1}}}).take_all() ==
        std::vector<Dict>{{{"x", 1}, {"y", nullptr}}, {{"x", nullptr}, {"y", 1}}});
  CHECK(error_of([] {
          data::from_columns({{"x", List{1, 2}}, {"y", List{1}}});
        }) == "column 'y' has 1 row and column 'x' has 2");
  CHECK(error_of([] { data::from_columns({{"x", 5}}); }).find("column 'x' is a int") != std::string::npos);
}

TEST_CASE("functions map rows, batches and columns") {
  const auto ids = data::range(2500);
  CHECK(ids.map([](const Dict& row) -> Dict {
             return {{"id", row["id"].as_int() * 2}};
           })
            .take(2)[1]["id"]
            .as_int() == 2);
  CHECK(iterated(ids.filter([](const Dict& row) { return row["id"].as_int() % 1000 == 0; })) ==
        std::vector<std::int64_t>{0, 1000, 2000});
  CHECK(ids.flat_map([](const Dict& row) -> std::vector<Dict> {
             if (row["id"].as_int() != 2400) return {};
             return {row, row};
           })
            .count() == 2);
  const auto batches = ids.map_batches([](const Batch& batch) -> Dict {
    return {{"id", batch["id"]},
            {"size", Tensor::of(std::vector<std::int64_t>(static_cast<std::size_t>(batch.rows()), batch.rows()))}};
  });
  CHECK(batches.take_all().back()["size"].as_int() == 2500 % 1024);
  CHECK(batches.take_all()[1024]["size"].as_int() == 1024);
  const auto two = ids.map([](const Dict& row) -> Dict {
    return {{"id", row["id"]}, {"half", row["id"].as_double() / 2}};
  });
  CHECK(two.select_columns({"half"}).columns() == std::vector<std::string>{"half"});
  CHECK(two.drop_columns({"half"}).columns() == std::vector<std::string>{"id"});
  CHECK(two.rename_columns({{"half", "x"}}).take(4)[3]["x"].as_double() == 1.5);
  CHECK(error_of([&] {
          two.select_columns({"halb"}).count(), two.select_columns({"halb"}).columns();
        }).find("no column named 'halb'; did you mean 'half'?") != std::string::npos);
  for (const auto& twice : {two.select_columns({"id", "id"}), two.rename_columns({{"half", "id"}})}) {
    CHECK(error_of([&] { twice.columns(); }).find("more than one column would be named 'id'") != std::string::npos);
  }
}

TEST_CASE("exceptions and invalid rows of a function are reported with their position") {
  const auto fails = data::range(10).map([](const Dict& row) -> Dict {
    if (row["id"].as_int() == 7) throw std::runtime_error("no sevens");
    return row;
  });
  CHECK(error_of([&] { fails.take_all(); }) == "map(): range(10) from 0: row 7: no sevens");
  CHECK(error_of([&] { iterated(fails); }).find("row 7: no sevens") != std::string::npos);
  const auto fewer = data::range(10).map_batches([](const Batch&) -> Dict { return {{"x", List{1}}}; });
  CHECK(error_of([&] { fewer.take_all(); }).find("returned 1 row for 10: set changes_row_count") != std::string::npos);
  const auto changes = data::range(2000).map([](const Dict& row) -> Dict {
    return {{"x", row["id"].as_int() < 1500 ? Value(1) : Value("text")}};
  });
  CHECK(error_of([&] { changes.take_all(); }).find("column 'x'") != std::string::npos);
}

TEST_CASE("splits keep the order, and every row is in one part") {
  const auto ids = data::range(200'000);  // several fragments
  CHECK(ids_of(ids.limit(70'000)) == up_to(70'000));
  CHECK(iterated(ids.limit(70'001), 5000) == up_to(70'001));
  CHECK(ids.repartition(7).num_fragments() == 7);
  CHECK(iterated(ids.repartition(7), 5000) == up_to(200'000));
  std::vector<std::int64_t> together;
  for (const auto& part : ids.split(3)) {
    const auto here = iterated(part, 5000);
    together.insert(together.end(), here.begin(), here.end());
  }
  CHECK(together == up_to(200'000));
  const auto parts = data::range(10).split_at_indices({2, 2, 7});
  CHECK(ids_of(parts[0]) == up_to(2));
  CHECK(parts[1].count() == 0);
  CHECK(ids_of(parts[2]) == up_to(7, 2));
  CHECK(ids_of(parts[3]) == up_to(10, 7));
  const auto [train, test] = data::range(10).train_test_split(0.25);
  CHECK(ids_of(train) == up_to(7));
  CHECK(ids_of(test) == up_to(10, 7));
  CHECK(ids_of(data::range(3).union_with(data::range(2))) == std::vector<std::int64_t>{0, 1, 2, 0, 1});
  // Without Arrow, which unit tests do not link.
  CHECK(error_of([] { data::range(3).union_with(data::range_tensor(3)).count(); }).find("does not match") !=
        std::string::npos);
}

TEST_CASE("a shuffle is seeded, complete, and applied before a split") {
  const auto ids = data::range(1000).random_shuffle({.seed = 3});
  const auto first = iterated(ids);
  CHECK(first != up_to(1000));
  CHECK(sorted(first) == up_to(1000));
  CHECK(iterated(ids) == first);
  CHECK(ids_of(ids.limit(10)) == std::vector<std::int64_t>(first.begin(), first.begin() + 10));
  CHECK(iterated(data::range(1000).random_shuffle({.seed = 4})) != first);
  // A function after the shuffle sees the same rows in the same order.
  CHECK(iterated(ids.map([](const Dict& row) { return row; })) == first);
  const auto [train, test] = data::range(100).train_test_split(30, {.shuffle = true, .seed = 1});
  auto all = ids_of(train);
  const auto rest = ids_of(test);
  CHECK(rest.size() == 30);
  all.insert(all.end(), rest.begin(), rest.end());
  CHECK(all != up_to(100));
  CHECK(sorted(all) == up_to(100));
}

TEST_CASE("what needs Arrow names the library that has it") {
  const std::string remedy =
      "needs the library trireme::data, which this program does not link: add "
      "find_package(trireme COMPONENTS data)";
  CHECK(error_of([] { data::range(3).filter("id > 1"); }).find("filter() with an expression " + remedy) == 0);
  CHECK(error_of([] { data::range(3).with_column("x", "id + 1"); }).find("with_column() " + remedy) == 0);
  CHECK(error_of([] { data::range(3).mean("id"); }).find("mean() " + remedy) == 0);
  CHECK(error_of([] { data::range(3).union_with(data::range_tensor(3)).count(); }).find(remedy) != std::string::npos);
}

TEST_CASE("a sample does not depend on fragments") {
  const auto rows = data::range(1000);
  const auto sample = ids_of(rows.random_sample(0.3, 7));
  CHECK(ids_of(rows.repartition(7).random_sample(0.3, 7)) == sample);
  CHECK(ids_of(rows.filter([](const Dict&) { return true; }).repartition(3).random_sample(0.3, 7)) == sample);
}

TEST_CASE("a sample is reproducible and known without reading") {
  const auto sample = data::range(100'000).random_sample(0.1, 5);
  const auto ids = ids_of(sample);
  CHECK(static_cast<std::int64_t>(ids.size()) == sample.count());
  CHECK(ids.size() > 9'000);
  CHECK(ids.size() < 11'000);
  CHECK(ids_of(data::range(100'000).random_sample(0.1, 5)) == ids);
  CHECK(data::range(10).random_sample(1.0).count() == 10);
  CHECK(data::range(10).random_sample(0.0).count() == 0);
}

TEST_CASE("shards partition a dataset, and a position fits any number of them") {
  const auto ids = data::range(100).random_shuffle({.seed = 1});
  std::vector<std::int64_t> taken;
  for (const auto& shard : ids.streaming_split(3)) {
    for (const auto& batch : shard.iter_batches({.batch_size = 8})) {
      for (auto id : batch["id"].values<std::int64_t>()) taken.push_back(id);
    }
    CHECK(shard.epoch() == 1);
  }
  CHECK(sorted(taken) == up_to(100));

  const auto begun = ids.streaming_split(2);
  taken.clear();
  const auto take = [&](const trireme::DataShard& shard, int steps) {
    for (const auto& batch : shard.iter_batches({.global_batch_size = 12})) {
      for (auto id : batch["id"].values<std::int64_t>()) taken.push_back(id);
      if (--steps == 0) break;
    }
  };
  // Leaving a loop ends its epoch, so the positions are read while it runs.
  Dict place;
  for (const auto& shard : begun) {
    int steps = 3;
    for (const auto& batch : shard.iter_batches({.global_batch_size = 12})) {
      for (auto id : batch["id"].values<std::int64_t>()) taken.push_back(id);
      if (--steps > 0) continue;
      place = shard.state();
      break;
    }
  }
  CHECK(place["rows"].as_int() == 36);
  for (const auto& shard : ids.streaming_split(3)) {
    shard.load_state(place);
    take(shard, 1000);
  }
  CHECK(sorted(taken) == up_to(100));
  CHECK(error_of([&] { begun[0].load_state({{"epoch", 0}}); }) != "");
}

TEST_CASE("an Arrow stream survives a round trip") {
  ArrowArrayStream stream;
  data::range(70'000).export_to(&stream);
  const auto back = data::from_stream(&stream);
  CHECK(iterated(back, 5000) == up_to(70'000));
  CHECK(data::range(0).count() == 0);
  CHECK(iterated(data::range(0)).empty());
  ArrowArrayStream none;
  data::range(10).filter([](const Dict&) { return false; }).export_to(&none);
  CHECK(data::from_stream(&none).columns() == std::vector<std::string>{"id"});
}

TEST_CASE("outside of a training function there is no shard") {
  CHECK(error_of([] { trireme::get_dataset_shard("train"); }).find("get_dataset_shard() cannot be used outside") !=
        std::string::npos);
}

}  // namespace dataset_test
