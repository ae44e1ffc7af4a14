#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <limits>

#include "base/json.h"
#include "data/arrays.h"
#include "preprocess/number_types.h"
#include "preprocess/state_json.h"
#include "preprocess/temporal.h"
#include "trireme/preprocessors.h"
#include "unit/temp_dir.h"

namespace preprocessors_json_test {

using trireme::Bytes;
using trireme::Dict;
using trireme::DType;
using trireme::List;
using trireme::Value;
using trireme::base::parse_plain_json;
using trireme::base::to_json;
namespace inner = trireme::preprocess;
using namespace trireme::data::preprocessors;

namespace {

std::string refusal(const std::string& text) {
  try {
    Preprocessor::deserialize(text);
  } catch (const trireme::ValueError& error) {
    return error.what();
  }
  return "";
}

List column(const std::vector<Dict>& rows, const char* name) {
  List values;
  for (const auto& row : rows) values.push_back(row[name]);
  return values;
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("values without a JSON type are written as in Python") {
  CHECK(to_json(inner::encoded(Bytes{"\xff"})) == R"({"$bytes":"/w=="})");
  CHECK(to_json(inner::encoded(List{1, "a"})) == R"({"$tuple":[1,"a"]})");
  CHECK(to_json(inner::encoded_pairs({{"a", 0}})) == R"({"a":0})");
  CHECK(to_json(inner::encoded_pairs({{"$a", 0}, {2, 1}})) == R"({"$pairs":[["$a",0],[2,1]]})");
  for (const auto& value :
       {Value(Bytes{""}), Value(Bytes{"a"}), Value(Bytes{"ab"}), Value(Bytes{std::string(300, '\x80')}),
        Value(List{List{1.5, true}, nullptr}), Value("x"), Value(std::numeric_limits<double>::infinity())}) {
    const auto text = to_json(inner::encoded(value));
    CHECK(*inner::decoded(*parse_plain_json(text)) == value);
  }
  for (const char* text :
       {R"({"$bytes":"/w="})", R"({"$bytes":"/w=a"})", R"({"$bytes":"=w=="})", R"({"$bytes":1})", R"({"$float":"one"})",
        R"({"$tuple":1})", R"({"$decimal":"1,5"})", R"({"$int":"7"})", R"({"a":1})"})
    CHECK_FALSE(inner::decoded(*parse_plain_json(text)));
  for (const auto dtype : {DType::kBool, DType::kI8, DType::kU16, DType::kF16, DType::kF64})
    CHECK(**inner::decoded_dtype(inner::encoded_dtype(dtype)) == dtype);
  CHECK_FALSE(inner::decoded_dtype(Dict{{"$dtype", ">f4"}}));
}

TEST_CASE("serialized preprocessors can be read, from text or from a folder") {
  const trireme::tests::TempDir folder;
  const std::string path = folder / "deep/checkpoint";
  Chain prepare(SimpleImputer({"x"}), OneHotEncoder({"c"}));
  prepare.fit(trireme::data::from_columns({{"x", List{1.0, nullptr}}, {"c", List{1, 2}}}));
  prepare.save(path);
  const auto loaded = Preprocessor::load(path);
  CHECK(loaded.serialize() == prepare.serialize());
  CHECK(loaded.describe() == prepare.describe());
  CHECK(loaded.fit_status() == FitStatus::kFitted);
  const auto files = std::filesystem::directory_iterator(path);
  CHECK(std::distance(begin(files), end(files)) == 1);
  CHECK_THROWS_WITH(Preprocessor::load(folder.path().string()),
                    (folder / "preprocessor.json" + " does not exist: Preprocessor::save(folder) writes it").c_str());
  CHECK(contains(StandardScaler({"x"}).serialize(), R"("fitted":null)"));
}

TEST_CASE("foreign or damaged JSON is rejected with a reason") {
  CHECK(contains(refusal("gASVWQ"), "'gASVWQ' was not written by Preprocessor::serialize()"));
  CHECK(contains(refusal("[]"), "was not written by"));
  CHECK(contains(refusal(R"({"preprocessor":"Chain","chain":[]})"), "was not written by"));
  CHECK(contains(refusal(R"({"preprocessor":"os.system","arguments":{},"fitted":null})"),
                 "no preprocessor named 'os.system'"));
  CHECK(contains(refusal(R"({"preprocessor":"Tokenizer","arguments":{"columns":["x"],"size":3},"fitted":null})"),
                 "no argument named 'size'"));
  const auto encoder = [](const std::string& stats) {
    return R"({"preprocessor":"OrdinalEncoder","arguments":{"columns":["x"]},"fitted":{"stats_":)" + stats + "}}";
  };
  CHECK(refusal(encoder(R"json({"unique_values(x)":{"a":0,"b":1}})json")) == "");
  CHECK(contains(refusal(encoder("{}")), "unique_values(x) is missing"));
  CHECK(contains(refusal(encoder(R"json({"unique_values(x)":{"a":1}})json")),
                 "the category 'a' has the number 1, expected 0"));
  CHECK(contains(refusal(encoder(R"json({"unique_values(x)":{"$pairs":[[1,0],[1.0,1]]}})json")), "duplicate category"));
  CHECK(
      contains(refusal(encoder(R"json({"unique_values(x)":{"$pairs":[[1]]}})json")), "is not a pair of key and value"));
  CHECK(contains(
      refusal(
          R"json({"preprocessor":"MinMaxScaler","arguments":{"columns":["x"]},"fitted":{"stats_":{"min(x)":0}}})json"),
      "invalid statistics of MinMaxScaler: max(x) is missing"));
}

TEST_CASE("numbers get the type that NumPy gives them") {
  using inner::common_type;
  CHECK(common_type(DType::kBool, DType::kI8) == DType::kI8);
  CHECK(common_type(DType::kI8, DType::kU8) == DType::kI16);
  CHECK(common_type(DType::kU64, DType::kI8) == DType::kF64);
  CHECK(common_type(DType::kI16, DType::kF16) == DType::kF32);
  CHECK(common_type(DType::kI8, DType::kF16) == DType::kF16);
  CHECK(common_type(DType::kF32, DType::kI32) == DType::kF64);
  CHECK(common_type(DType::kU16, DType::kI32) == DType::kI32);
  CHECK(inner::half_of(1) == 0x3c00);
  CHECK(inner::half_of(-2.5) == 0xc100);
  CHECK(inner::half_of(65504) == 0x7bff);
  CHECK(inner::half_of(65520) == 0x7c00);
  CHECK(inner::half_of(0x1p-24) == 1);
  CHECK(inner::half_of(0.1) == 0x2e66);
}

TEST_CASE("dates are the same categories as in Python, and survive a round trip") {
  using trireme::data::make_array;
  using trireme::data::make_schema;
  const std::vector<std::int32_t> days = {20455, -1, 20455};
  const std::vector<std::int64_t> times = {1767323045000006, -1000000, 0};
  std::vector<trireme::data::RecordColumn> columns;
  columns.push_back({make_schema("tdD", "day"), make_array(3, 0, {nullptr, days.data()}, {})});
  columns.push_back({make_schema("tsu:", "when"), make_array(3, 0, {nullptr, times.data()}, {})});
  auto record = trireme::data::record_of(std::move(columns), 3);
  auto stream = trireme::data::stream_of({*trireme::data::batch_of(std::move(record))});
  const auto rows = trireme::data::from_stream(&*stream);

  OrdinalEncoder encoder({"day", "when"});
  CHECK(column(encoder.fit_transform(rows).take_all(), "when") == List{2, 0, 1});
  CHECK(to_json(encoder.stats()) ==
        R"json({"unique_values(day)":{"$pairs":[[{"$date":"1969-12-31"},0],[{"$date":"2026-01-02"},1]]},)json"
        R"json("unique_values(when)":{"$pairs":[[{"$datetime":"1969-12-31T23:59:59"},0],)json"
        R"json([{"$datetime":"1970-01-01T00:00:00"},1],[{"$datetime":"2026-01-02T03:04:05.000006"},2]]}})json");
  const auto again = Preprocessor::deserialize(encoder.serialize());
  CHECK(column(again.transform(rows).take_all(), "day") == List{1, 0, 1});

  LabelEncoder labels("when", {.output_column = "n"});
  const auto back = labels.inverse_transform(labels.fit_transform(rows).drop_columns({"when"}));
  CHECK(column(back.take_all(), "when") == column(rows.take_all(), "when"));
  CHECK(back.schema().find("when: timestamp[us]") != std::string::npos);
  for (const char* text : {"2026-13-01", "2026-02-30", "2026-1-01", "-001-01-01", "2026-01-01T00:00:00", ""})
    CHECK_FALSE(inner::parse_temporal(Dict{{"$date", text}}));
  for (const char* text : {"2026-01-01", "2026-01-01T00:00", "2026-01-01T00:00:00.1", "2026-01-01T00:00:00+1:00"})
    CHECK_FALSE(inner::parse_temporal(Dict{{"$datetime", text}}));
}

}  // namespace preprocessors_json_test
