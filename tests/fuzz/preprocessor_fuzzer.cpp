#include <stdexcept>

#include "fuzz/fuzzer.h"
#include "trireme/preprocessors.h"

namespace preprocessor_fuzzer {

using trireme::Dict;
using trireme::List;
using trireme::data::preprocessors::Preprocessor;

namespace {

// A preprocessor may refuse columns of any kind, but with a message.
void apply(const Preprocessor& preprocessor) {
  Dict columns = {
      {"x", List{1.5, nullptr, -3.0}}, {"c", List{"a b", "b", ""}}, {"l", List{List{"a"}, List{}, nullptr}}};
  for (const auto& name : preprocessor.get_input_columns()) {
    if (!columns.contains(name)) columns[name] = List{1, 2, 3};
  }
  try {
    (void)preprocessor.transform_batch(columns);
  } catch (const std::runtime_error& error) {
    expect(error.what()[0] != '\0', "an error has a message");
  }
}

}  // namespace

void fuzz(const std::uint8_t* data, std::size_t size) {
  try {
    const auto preprocessor = Preprocessor::deserialize(as_text(data, size));
    const std::string text = preprocessor.serialize();
    expect(Preprocessor::deserialize(text).serialize() == text, "written text parses to the same value");
    apply(preprocessor);
  } catch (const trireme::ValueError& error) {
    expect(error.what()[0] != '\0', "an error has a message");
  }
}

std::vector<std::string> seeds() {
  return {
      R"json({"preprocessor":"StandardScaler","arguments":{"columns":["x"],"output_columns":["y"]},"fitted":{"stats_":{"mean(x)":1.5,"std(x)":2}}})json",
      R"json({"preprocessor":"RobustScaler","arguments":{"columns":["x"],"quantile_range":{"$tuple":[0.25,0.75]},"output_columns":["x"],"quantile_precision":800},"fitted":{"stats_":{"low_quantile(x)":0,"median(x)":1,"high_quantile(x)":2}}})json",
      R"json({"preprocessor":"OrdinalEncoder","arguments":{"columns":["l"],"encode_lists":false,"output_columns":["l"]},"fitted":{"stats_":{"unique_values(l)":{"$pairs":[[{"$tuple":["a",{"$float":"nan"}]},0],[{"$bytes":"/w=="},1],[true,2]]}}}})json",
      R"json({"preprocessor":"OneHotEncoder","arguments":{"columns":["c"],"max_categories":{"c":2},"output_columns":["c"]},"fitted":{"stats_":{"unique_values(c)":{"a b":0,"b":1}}}})json",
      R"json({"preprocessor":"SimpleImputer","arguments":{"columns":["x","c"],"strategy":"constant","fill_value":0.5,"output_columns":["x","c"]},"fitted":null})json",
      R"json({"preprocessor":"SimpleImputer","arguments":{"columns":["l"],"strategy":"most_frequent","fill_value":null,"output_columns":["l"]},"fitted":{"stats_":{"most_frequent(l)":{"$tuple":["a"]}}}})json",
      R"json({"preprocessor":"Concatenator","arguments":{"columns":["x"],"output_column_name":"f","dtype":{"$dtype":"<f4"},"raise_if_missing":false,"flatten":true},"fitted":null})json",
      R"json({"preprocessor":"CountVectorizer","arguments":{"columns":["c"],"tokenization_fn":null,"max_features":2,"output_columns":["c"]},"fitted":{"stats_":{"token_counts(c)":{"b":2,"a":1}}}})json",
      R"json({"preprocessor":"HashingVectorizer","arguments":{"columns":["c"],"num_features":9,"tokenization_fn":null,"output_columns":["c"]},"fitted":null})json",
      R"json({"preprocessor":"CustomKBinsDiscretizer","arguments":{"columns":["x"],"bins":{"x":[0.0,1,{"$float":"inf"}]},"right":true,"include_lowest":false,"duplicates":"drop","dtypes":{"x":["low","high"]},"output_columns":["x"]},"fitted":null})json",
      R"json({"preprocessor":"UniformKBinsDiscretizer","arguments":{"columns":["x"],"bins":3,"right":true,"include_lowest":true,"duplicates":"raise","dtypes":{},"output_columns":["x"]},"fitted":{"stats_":{"x":[0,1,2,3]}}})json",
      R"json({"preprocessor":"Chain","chain":[{"preprocessor":"Categorizer","arguments":{"columns":["c"],"dtypes":{"c":["a","b"]},"output_columns":["c"]},"fitted":{"stats_":{"c":["a","b"]}}},{"preprocessor":"Tokenizer","arguments":{"columns":["c"],"tokenization_fn":null,"output_columns":["t"]},"fitted":null}]})json",
      R"json({"preprocessor":"LabelEncoder","arguments":{"label_column":"c","output_column":"n"},"fitted":{"stats_":{"unique_values(c)":{"b":0}}}})json",
  };
}

TRIREME_FUZZER(preprocessor);

}  // namespace preprocessor_fuzzer
