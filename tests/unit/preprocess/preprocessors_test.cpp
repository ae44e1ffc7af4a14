#include "trireme/preprocessors.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "unit/error_of.h"

namespace preprocessors_test {

using trireme::Batch;
using trireme::Dataset;
using trireme::Dict;
using trireme::DType;
using trireme::List;
using trireme::Tensor;
using trireme::Value;
using trireme::tests::error_of;
namespace data = trireme::data;
using namespace trireme::data::preprocessors;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

List column(const std::vector<Dict>& rows, const char* name) {
  List values;
  for (const auto& row : rows) values.push_back(row[name]);
  return values;
}

Dataset people() {
  return data::from_columns({{"age", List{20.0, 30.0, nullptr, 40.0}},
                             {"town", List{"Rome", "Athens", "Rome", "Tyre"}},
                             {"id", Tensor::of(std::vector<std::int32_t>{1, 2, 3, 4})}})
      .repartition(2);
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a chain fits each to the output of the previous ones, and keeps the other columns") {
  Chain prepare(SimpleImputer({"age"}), StandardScaler({"age"}, {.output_columns = {"scaled"}}),
                OrdinalEncoder({"town"}));
  CHECK(prepare.fit_status() == FitStatus::kNotFitted);
  CHECK(
      contains(error_of([&] { prepare.transform(people()); }), "has not been fitted: call fit(ds) before transform()"));
  const auto made = prepare.fit_transform(people());
  CHECK(prepare.fit_status() == FitStatus::kFitted);
  CHECK(made.columns() == std::vector<std::string>{"age", "town", "id", "scaled"});
  CHECK(contains(made.schema(), "id: int32\n"));
  const auto rows = made.take_all();
  CHECK(column(rows, "age") == List{20.0, 30.0, 30.0, 40.0});
  CHECK(column(rows, "town") == List{1, 0, 1, 2});
  CHECK(rows[0]["scaled"].as_double() == doctest::Approx(-std::sqrt(2.0)));

  // A new batch with an unknown town.
  const Dict asked = prepare.transform_batch(Dict{{"age", List{nullptr}}, {"town", List{"Carthage"}}});
  CHECK(asked["age"].as_tensor() == Tensor::of(std::vector<double>{30}));
  CHECK(asked["town"] == Value(List{nullptr}));
  for (const auto& batch : people().iter_batches({.batch_size = 4}))
    CHECK(prepare.transform_batch(batch)["scaled"].as_tensor().values<double>()[3] == doctest::Approx(std::sqrt(2.0)));
}

TEST_CASE("statistics do not depend on a shuffle, and a later fit does not change existing datasets") {
  auto far = data::range(49998).map_batches([](const Batch& batch) -> Dict {
    std::vector<double> values;
    for (const auto id : batch["id"].values<std::int64_t>()) values.push_back(1e9 + static_cast<double>(id % 3));
    return {{"x", Tensor::of(values)}};
  });
  StandardScaler scaler({"x"});
  scaler.fit(far);
  const auto stats = scaler.stats();
  CHECK(stats["std(x)"].as_double() == doctest::Approx(std::sqrt(2.0 / 3)).epsilon(1e-9));
  scaler.fit(far.random_shuffle({.seed = 3}));
  CHECK(scaler.stats() == stats);

  const auto before = scaler.transform(far.limit(3));
  const auto copy = scaler;  // a handle
  scaler.fit(data::from_columns({{"x", List{1.0, 3.0}}}));
  CHECK(copy.stats() == Dict{{"mean(x)", 2.0}, {"std(x)", 1.0}});
  CHECK(before.take_all()[1]["x"].as_double() == doctest::Approx(0).epsilon(1e-3));
  CHECK(contains(error_of([&] { scaler.fit(data::from_columns({{"x", List{kNaN}}})); }), "no values to learn from"));
  CHECK(copy.fit_status() == FitStatus::kNotFitted);
}

TEST_CASE("scalers keep missing values, and handle constants") {
  const auto rows = data::from_columns({{"x", List{1.0, nullptr, kNaN, 3.0}},
                                        {"same", List{5, 5, 5, 5}},
                                        {"f", Tensor::of(std::vector<float>{0, 1, 2, 4})}});
  const auto scaled = StandardScaler({"x", "same"}).fit_transform(rows).take_all();
  CHECK(scaled[0]["x"] == Value(-1.0));
  CHECK(scaled[1]["x"].is_null());
  CHECK(std::isnan(scaled[2]["x"].as_double()));
  CHECK(column(scaled, "same") == List{0.0, 0.0, 0.0, 0.0});
  const auto narrow = MinMaxScaler({"f"}).fit_transform(rows);
  CHECK(contains(narrow.schema(), "f: float\n"));
  CHECK(column(narrow.take_all(), "f") == List{0.0, 0.25, 0.5, 1.0});
}

TEST_CASE("quantiles are approximate when values do not fit") {
  const auto numbers = data::range(400000);
  const auto stats = RobustScaler({"id"}).fit(numbers).stats();
  CHECK(stats["median(id)"].as_double() == doctest::Approx(200000).epsilon(1e-3));
  CHECK(stats["low_quantile(id)"].as_double() == doctest::Approx(100000).epsilon(1e-3));
  const auto exact = RobustScaler({"id"}, {.quantile_range = {0.1, 1}}).fit(data::range(5)).stats();
  CHECK(exact == Dict{{"low_quantile(id)", 0.4}, {"median(id)", 2.0}, {"high_quantile(id)", 4.0}});
}

TEST_CASE("categories of all types are distinguished, even if a batch has none of them") {
  const auto rows = data::from_items({{{"c", "b"}, {"n", 2.5}, {"l", List{"x", "y"}}, {"b", trireme::Bytes{"\xff"}}},
                                      {{"c", "a"}, {"n", 1.0}, {"l", List{}}, {"b", trireme::Bytes{"a"}}},
                                      {{"c", "b"}, {"n", 2.5}, {"l", List{"y"}}, {"b", trireme::Bytes{"a"}}}});
  const auto encoded = OrdinalEncoder({"c", "n", "l", "b"}).fit_transform(rows).take_all();
  CHECK(encoded[0] == Dict{{"c", 1}, {"n", 1}, {"l", List{0, 1}}, {"b", 1}});
  CHECK(encoded[1] == Dict{{"c", 0}, {"n", 0}, {"l", List{}}, {"b", 0}});

  OneHotEncoder hot({"c", "l"}, {.max_categories = {{"c", 1}}});
  const auto vectors = hot.fit_transform(rows).take_all();
  CHECK(vectors[0]["c"].as_tensor() == Tensor::of(std::vector<std::uint8_t>{1}));
  CHECK(vectors[1]["c"].as_tensor() == Tensor::of(std::vector<std::uint8_t>{0}));
  CHECK(vectors[1]["l"].as_tensor() == Tensor::of(std::vector<std::uint8_t>{1, 0, 0}));

  OrdinalEncoder strict({"c"});
  strict.fit(rows);
  const auto unseen = strict.transform(data::from_columns({{"c", List{"z", "z", "a"}}}).repartition(3));
  CHECK(column(unseen.take_all(), "c") == List{nullptr, nullptr, 0});
  CHECK(contains(error_of([&] {
                   strict.transform(data::from_columns({{"c", List{1}}}));
                 }),
                 "column 'c' is int64, but it was fitted to categories such as 'a' (str)"));
  CHECK(contains(error_of([&] { strict.transform_batch(Dict{{"c", List{"a", nullptr}}}); }), "column 'c' has nulls"));
}

TEST_CASE("labels are restored through a dataset") {
  LabelEncoder labels("town", {.output_column = "number"});
  const auto numbered = labels.fit_transform(people());
  CHECK(column(numbered.take_all(), "number") == List{1, 0, 1, 2});
  const auto back = labels.inverse_transform(numbered.drop_columns({"town"}));
  CHECK(column(back.take_all(), "town") == List{"Rome", "Athens", "Rome", "Tyre"});
  CHECK(contains(error_of([&] {
                   labels.inverse_transform_batch(Dict{{"number", List{3}}});
                 }),
                 "the label numbers 0 to 2"));
  CHECK(error_of([] { StandardScaler({"x"}).inverse_transform(people()); }) ==
        "StandardScaler has no inverse_transform(); only LabelEncoder has one");
}

TEST_CASE("columns are combined into one tensor") {
  const auto rows = data::from_columns({{"a", Tensor::of(std::vector<std::uint8_t>{1, 2})},
                                        {"b", Tensor::of(std::vector<std::int8_t>{-1, 3})},
                                        {"v", Tensor::of(std::vector<float>{1, 2, 3, 4}, {2, 2})},
                                        {"gap", List{1, nullptr}}});
  const auto together = [&](const Concatenator& concatenator, const char* name = "concat_out") {
    return concatenator.transform(rows.select_columns(concatenator.get_input_columns()))
        .take_all()[1][name]
        .as_tensor();
  };
  CHECK(together(Concatenator({"a", "b"})) == Tensor::of(std::vector<std::int16_t>{2, 3}));
  CHECK(together(Concatenator({"v", "a"}, {.output_column_name = "f", .flatten = true}), "f") ==
        Tensor::of(std::vector<float>{3, 4, 2}));
  CHECK(std::isnan(together(Concatenator({"gap"}, {.dtype = DType::kF32})).values<float>()[0]));
  CHECK(contains(error_of([&] { together(Concatenator({"gap"})); }), "use dtype='float32'"));
  CHECK(contains(error_of([&] { together(Concatenator({"v"})); }), "set flatten"));
  CHECK(contains(error_of([&] { Concatenator({"town"}).transform(people()); }), "expected numbers"));
  CHECK(contains(error_of([] { Concatenator({"a"}, {.dtype = DType::kBF16}); }),
                 "a NumPy number type of at most 64 bits"));
}

TEST_CASE("functions are supported, but not in JSON") {
  const auto upper = [](std::string_view text) -> std::vector<std::string> {
    if (text == "bad") throw std::runtime_error("no such text");
    return {std::string(text) + "!"};
  };
  const auto older = [](const Batch& batch) -> Dict {
    Tensor age(DType::kF64, {batch.rows()});
    for (std::int64_t i = 0; i < batch.rows(); ++i) age.values<double>()[i] = batch["age"].values<double>()[i] + 1;
    return {{"age", age}};
  };
  Chain chain(SimpleImputer({"age"}), BatchMapper(older), MaxAbsScaler({"age"}));
  CHECK(column(chain.fit_transform(people()).take_all(), "age")[3] == Value(1.0));
  CHECK(chain.transform_batch(Dict{{"age", List{40.0}}})["age"].as_tensor() == Tensor::of(std::vector<double>{1}));
  Tokenizer tokenizer({"t"}, {.tokenization_fn = upper});
  CHECK(tokenizer.transform(data::from_columns({{"t", List{"a", nullptr}}})).take_all()[0]["t"] == Value(List{"a!"}));
  CHECK(contains(error_of([&] {
                   tokenizer.transform_batch(Dict{{"t", List{"bad"}}});
                 }),
                 "tokenization_fn: no such text"));
  for (const Preprocessor& each : {Preprocessor(tokenizer), Preprocessor(chain)})
    CHECK(contains(error_of([&] { (void)each.serialize(); }), "cannot be written as JSON"));
}

TEST_CASE("invalid arguments are reported at once") {
  CHECK(contains(error_of([] { StandardScaler({}); }), "columns=[]: expected a list of column names"));
  CHECK(contains(error_of([] { StandardScaler({"a", "a"}); }), "a name appears twice"));
  CHECK(contains(error_of([] { StandardScaler({"a"}, {.output_columns = {"x", "y"}}); }), "2 names for 1 column"));
  CHECK(contains(error_of([] { RobustScaler({"a"}, {.quantile_range = {0.9, 0.1}}); }), "the smaller one first"));
  CHECK(contains(error_of([] { Normalizer({"a"}, {.norm = "l3"}); }), "norm='l3': expected one of 'l1', 'l2', 'max'"));
  CHECK(contains(error_of([] { SimpleImputer({"a"}, {.strategy = "constant"}); }), "needs a fill_value"));
  CHECK(contains(error_of([] { OneHotEncoder({"a"}, {.max_categories = {{"b", 2}}}); }), "max_categories names 'b'"));
  CHECK(contains(error_of([] { HashingVectorizer({"a"}, 0); }), "num_features=0"));
  CHECK(contains(error_of([] { CustomKBinsDiscretizer({"a"}, std::vector<double>{1, 0}); }), "in ascending order"));
  CHECK(
      contains(error_of([] { SimpleImputer({"town"}, {.strategy = "constant", .fill_value = 0}).transform(people()); }),
               "column 'town' is large_string, and 0 is not a valid value for it"));
  CHECK(contains(error_of([] { StandardScaler({"nowhere"}).fit(people()); }),
                 "StandardScaler: no column named 'nowhere'; the columns are age, town, id"));
  CHECK(contains(error_of([] { Chain(std::vector<Preprocessor>{}); }), "expected preprocessors"));
}

}  // namespace preprocessors_test
