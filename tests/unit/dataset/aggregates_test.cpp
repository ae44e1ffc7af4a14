#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "trireme/arrow/data.h"
#include "trireme/data.h"
#include "unit/error_of.h"

namespace dataset_aggregates_test {

using trireme::Batch;
using trireme::Bytes;
using trireme::Dataset;
using trireme::Dict;
using trireme::List;
using trireme::Tensor;
using trireme::Value;
using trireme::tests::error_of;
namespace data = trireme::data;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Dataset table() {
  return data::from_columns({{"i", List{3, nullptr, 1}},
                             {"f", List{kNan, 1.5, nullptr}},
                             {"s", List{"b", nullptr, "a"}},
                             {"b", List{true, nullptr, false}},
                             {"by", List{Bytes{"b"}, nullptr, Bytes{"a"}}},
                             {"n", List{nullptr, nullptr, nullptr}},
                             {"l", List{List{1}, nullptr, List{2}}}});
}

}  // namespace

TEST_CASE("aggregates ignore nulls, or are null if there are any") {
  const auto rows = table();
  CHECK(rows.sum("i") == Value(4));
  CHECK(rows.min("i") == Value(1));
  CHECK(rows.max("i") == Value(3));
  CHECK(rows.mean("i") == Value(2.0));
  CHECK(rows.std("i").as_double() == doctest::Approx(std::sqrt(2.0)));
  CHECK(rows.std("i", 0) == Value(1.0));
  CHECK(rows.sum("i", false).is_null());
  CHECK(rows.min("i", false).is_null());
  CHECK(rows.mean("i", false).is_null());
  CHECK(rows.std("i", 1, false).is_null());
  CHECK(rows.sum("b") == Value(1));
  CHECK(rows.mean("b") == Value(0.5));
  CHECK(rows.min("b") == Value(false));
  CHECK(rows.max("b") == Value(true));
  CHECK(rows.min("s") == Value("a"));
  CHECK(rows.max("s") == Value("b"));
  CHECK(rows.max("by") == Value(Bytes{"b"}));
  CHECK(rows.min("f") == Value(1.5));
  CHECK(rows.max("f") == Value(1.5));
  CHECK(std::isnan(rows.sum("f").as_double()));
  CHECK(std::isnan(rows.mean("f").as_double()));
  for (const char* each : {"n"}) {
    CHECK(rows.sum(each).is_null());
    CHECK(rows.max(each).is_null());
    CHECK(rows.mean(each).is_null());
    CHECK(rows.std(each).is_null());
  }
  CHECK(data::range(0).sum("id").is_null());
  CHECK(data::range(0).std("id").is_null());
  CHECK(std::isnan(data::range(1).std("id").as_double()));
}

TEST_CASE("aggregates are exact over many batches") {
  const auto many = data::range(200'000);
  CHECK(many.sum("id") == Value(std::int64_t{200'000} * 199'999 / 2));
  CHECK(many.mean("id") == Value(99'999.5));
  CHECK(many.max("id") == Value(199'999));
  CHECK(many.std("id").as_double() == doctest::Approx(std::sqrt(200'000.0 * 200'001.0 / 12)));
  // Far from zero, where a naive sum of squares loses all precision.
  const auto far = many.with_column("far", "id % 2 + 1000000000.5").limit(1000);
  CHECK(far.std("far").as_double() == doctest::Approx(std::sqrt(0.25 * 1000 / 999)));
  CHECK(many.random_shuffle({.seed = 1}).sum("id") == many.sum("id"));
  const auto large = data::from_columns({{"x", List{std::int64_t{1} << 62, std::int64_t{1} << 62}}});
  CHECK(error_of<trireme::ValueError>([&] { large.sum("x"); }) ==
        "sum(x): 9223372036854775808 does not fit into a 64-bit integer; cast the column to float64 or decimal first");
  CHECK(large.mean("x") == Value(std::ldexp(1.0, 62)));
  const auto moments = data::range(40).repartition(4).map([](const Dict& row) -> Dict {
    return {{"k", 0}, {"t", 1'700'000'000'000'000'000 + row["id"].as_int()}};
  });
  CHECK(moments.std("t").as_double() == doctest::Approx(std::sqrt(40.0 * 41 / 12)).epsilon(1e-12));
  const auto groups = data::group_by(moments, {"k"}, {{"t", "std"}}).take_all();
  CHECK(groups.front()["std(t)"].as_double() == doctest::Approx(std::sqrt(40.0 * 41 / 12)).epsilon(1e-12));
}

TEST_CASE("unique returns values in order of first appearance") {
  CHECK(table().unique("i") == List{3, nullptr, 1});
  CHECK(table().unique("i", true) == List{3, 1});
  CHECK(table().unique("s") == List{"b", nullptr, "a"});
  CHECK(table().unique("b") == List{true, nullptr, false});
  CHECK(data::from_columns({{"x", List{2.5, kNan, 2.5, kNan}}}).unique("x").size() == 2);
  CHECK(data::range(150'000).with_column("k", "id % 3 * 1.0").unique("k") == List{0.0, 1.0, 2.0});
  CHECK(data::range(0).unique("id").empty());
}

TEST_CASE("errors name columns that cannot be aggregated") {
  CHECK(error_of<trireme::ValueError>([] { table().sum("ii"); }) ==
        "sum: no column named 'ii' (columns: i, f, s, b, by, n, l)");
  CHECK(error_of<trireme::ValueError>([] { table().sum("s"); }) ==
        "sum(s): column 's' is large_string, which has no sum");
  CHECK(error_of<trireme::ValueError>([] { table().std("b"); }) == "std(b): column 'b' is bool, which has no std");
  CHECK(error_of<trireme::ValueError>([] { table().min("l"); }).find("min(l): column 'l' is ") == 0);
  CHECK(error_of<trireme::ValueError>([] { table().unique("l"); }).find("which has no unique") != std::string::npos);
}

}  // namespace dataset_aggregates_test
