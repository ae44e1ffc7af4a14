#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "trireme/arrow/data.h"
#include "unit/error_of.h"

namespace dataset_unified_test {

using trireme::Dataset;
using trireme::Dict;
using trireme::List;
using trireme::Tensor;
using trireme::Value;
using trireme::tests::error_of;
namespace data = trireme::data;
namespace fs = std::filesystem;

namespace {

// An empty folder, removed at the end.
struct Folder {
  Folder() : path(fs::temp_directory_path() / ("unified_test_" + std::to_string(std::rand()))) {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const char* name) const { return (path / name).string(); }

  fs::path path;
};

List column_of(const Dataset& dataset, const std::string& column) {
  List values;
  for (const auto& row : dataset.take_all()) values.push_back(row[column]);
  return values;
}

Dataset narrow() {
  return data::from_columns({{"k", Tensor::of(std::vector<std::int32_t>{1, 2})}, {"a", List{"x", "y"}}});
}
Dataset wide() { return data::from_columns({{"k", List{2, std::int64_t{1} << 40}}, {"b", List{0.5, nullptr}}}); }

}  // namespace

TEST_CASE("files with different columns are matched by name") {
  const Folder folder;
  data::write_parquet(narrow(), folder / "1");
  data::write_parquet(wide(), folder / "2");
  const auto both = data::read_parquet({folder / "1", folder / "2"});
  CHECK(both.columns() == std::vector<std::string>{"k", "a", "b"});
  CHECK(column_of(both, "k") == List{1, 2, 2, std::int64_t{1} << 40});
  CHECK(column_of(both, "a") == List{"x", "y", nullptr, nullptr});
  CHECK(column_of(both, "b") == List{nullptr, nullptr, 0.5, nullptr});
  CHECK(column_of(both.select_columns({"b"}), "b") == List{nullptr, nullptr, 0.5, nullptr});
  CHECK(column_of(both.filter("k >= 2"), "k") == List{2, 2, std::int64_t{1} << 40});
  CHECK(both.count() == 4);
  const auto strict = error_of([&] { data::read_parquet({folder / "1", folder / "2"}, {.strict = true}).count(); });
  CHECK(strict.find("column 'k' is int32 in ") != std::string::npos);
  data::write_parquet(data::from_columns({{"k", List{"text"}}}), folder / "3");
  const auto refused = error_of([&] { data::read_parquet({folder / "1", folder / "3"}).count(); });
  CHECK(refused.find(" and large_string in ") != std::string::npos);
}

TEST_CASE("a union has the columns of both, in types that hold all values") {
  const auto both = narrow().union_with(wide());
  CHECK(both.columns() == std::vector<std::string>{"k", "a", "b"});
  CHECK(column_of(both, "k") == List{1, 2, 2, std::int64_t{1} << 40});
  CHECK(column_of(both, "a") == List{"x", "y", nullptr, nullptr});
  CHECK(both.schema().find("k: int64") != std::string::npos);
  const auto mixed = data::from_columns({{"k", List{1}}}).union_with(data::from_columns({{"k", List{1.5}}}));
  CHECK(column_of(mixed, "k") == List{1.0, 1.5});
  const auto lost =
      data::from_columns({{"k", List{(std::int64_t{1} << 53) + 1}}}).union_with(data::from_columns({{"k", List{1.5}}}));
  CHECK(error_of([&] { lost.take_all(); }).find("column 'k': int64 cannot become double") != std::string::npos);
  const auto refused = error_of([] {
    data::from_columns({{"k", List{"a"}}}).union_with(data::range(1).rename_columns({{"id", "k"}})).count();
  });
  CHECK(refused.find("rename, drop or cast it first") != std::string::npos);
}

TEST_CASE("join matches keys of different types") {
  const Folder folder;
  std::ofstream(folder / "names.csv") << "name,x\na,1\nb,2\n";
  const auto small = data::read_csv(folder / "names.csv");  // string
  const auto large = data::from_columns({{"name", List{"b", "c"}}, {"y", List{3, 4}}});
  CHECK(column_of(data::join(small, large, {"name"}), "y") == List{3});
  CHECK(column_of(data::join(narrow(), wide(), {"k"}), "b") == List{0.5});
  const auto zeros = data::from_columns({{"f", List{-0.0, 1.0}}, {"x", List{1, 2}}});
  CHECK(column_of(data::join(zeros, data::from_columns({{"f", List{0.0}}, {"y", List{9}}}), {"f"}), "y") == List{9});
}

TEST_CASE("large integers do not overflow, and zeros are one value") {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto large = data::from_columns({{"t", List{kMost, kMost - 2, kMost - 4}}});
  CHECK(large.mean("t").as_double() == static_cast<double>(kMost - 2));
  CHECK(error_of<trireme::ValueError>([&] { large.sum("t"); }).find("sum(t): 27670116110564327415 does not fit") == 0);
  const auto zeros = data::from_columns({{"f", List{0.0, -0.0, std::nan(""), std::nan("")}}});
  CHECK(zeros.unique("f").size() == 2);
  CHECK(data::group_by(zeros, {"f"}, {data::count_rows()}).count() == 2);
}

TEST_CASE("tables of a function's rows have the types that all of them need") {
  const auto late = data::range(3000).repartition(6).map([](const Dict& row) -> Dict {
    const auto id = row["id"].as_int();
    return {{"id", 2999 - id}, {"v", id >= 2500 ? Value(1.5) : Value(1)}};
  });
  CHECK(late.union_with(late).take_all()[3000]["v"] == Value(1.0));
  CHECK(data::sort_by(late, {"id"}).take(1)[0]["v"] == Value(1.5));
  CHECK(late.sum("v") == Value(3250.0));
  CHECK(late.filter("v > 1").count() == 500);
  CHECK(late.with_column("w", "v * 2").max("w") == Value(3.0));
  const Folder folder;
  data::write_parquet(late, folder.path.string(), {.min_rows_per_file = 400});
  const auto stored = data::read_parquet(folder.path.string(), {.strict = true});
  CHECK(stored.take_all()[0] == Dict{{"id", 2999}, {"v", 1.0}});
  CHECK(stored.num_fragments() == 8);  // none of files with narrower types is left
}

TEST_CASE("group_by adds large integers exactly") {
  constexpr std::int64_t kLarge = std::int64_t{1} << 62;
  const auto wraps = data::from_columns({{"k", List{0, 0, 1}}, {"t", List{kLarge, kLarge, kLarge}}});
  CHECK(error_of([&] {
          data::group_by(wraps, {"k"}, {{"t", "sum"}}).count();
        }).find("sum(t): 9223372036854775808 does not fit into a 64-bit integer") != std::string::npos);
  CHECK(error_of([&] {
          data::group_by(wraps, {}, {{"t", "sum"}}).count();
        }).find("13835058055282163712 does not fit") != std::string::npos);
  const auto fits = data::from_columns({{"k", List{0, 0, 0, 1}}, {"t", List{kLarge, 1, -kLarge, nullptr}}});
  const auto rows =
      data::group_by(fits, {"k"}, {{"t", "sum"}, data::count_rows(), {"t", "mean", "average"}}).take_all();
  CHECK(rows == std::vector<Dict>{{{"k", 0}, {"sum(t)", 1}, {"count()", 3}, {"average", 1.0 / 3}},
                                  {{"k", 1}, {"sum(t)", nullptr}, {"count()", 1}, {"average", nullptr}}});
}

TEST_CASE("NaNs of different bits are one key") {
  const double other = std::copysign(std::nan("7"), -1.0);
  const auto rows = data::from_columns({{"f", List{std::nan(""), other, 1.0}}, {"x", List{1, 2, 3}}});
  CHECK(rows.unique("f").size() == 2);
  CHECK(data::group_by(rows, {"f"}, {data::count_rows()}).count() == 2);
  const auto right = data::from_columns({{"f", List{other}}, {"y", List{9}}});
  CHECK(data::join(rows, right, {"f"}).count() == 2);
}

}  // namespace dataset_unified_test
