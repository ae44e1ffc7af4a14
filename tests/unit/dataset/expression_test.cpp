#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "trireme/data.h"
#include "unit/error_of.h"

namespace dataset_expression_test {

using trireme::Dataset;
using trireme::Dict;
using trireme::List;
using trireme::Tensor;
using trireme::Value;
using trireme::data::col;
using trireme::data::Expression;
using trireme::data::lit;
using trireme::tests::error_of;
namespace data = trireme::data;

namespace {

Dataset table() {
  return data::from_columns({
      {"id", List{0, 1, 2, 3}},
      {"x", List{0.5, nullptr, -2.5, std::numeric_limits<double>::quiet_NaN()}},
      {"n", List{3, nullptr, -7, 4}},
      {"s", List{"a", nullptr,
                 "\xc3\x84"
                 "b",
                 "it's"}},
      {"b", List{true, nullptr, false, true}},
      {"by", List{trireme::Bytes{"a"}, trireme::Bytes{std::string("\0\xff", 2)}, nullptr, trireme::Bytes{"c"}}},
      {"small", Tensor::of(std::vector<std::int8_t>{1, 2, 3, 127})},
      {"byte", Tensor::of(std::vector<std::uint8_t>{0, 1, 2, 255})},
      {"f", Tensor::of(std::vector<float>{0.1f, 0.2f, 0.3f, 0.4f})},
      {"large", Tensor::of(std::vector<std::uint64_t>{1, 2, 3, 18446744073709551615u})},
      {"list", List{List{1}, nullptr, List{}, List{2, 3}}},
      {"if", List{1, 2, 3, 4}},
  });
}

// The ids of the rows that are kept.
template <typename E>
std::vector<std::int64_t> kept(const E& expression) {
  std::vector<std::int64_t> ids;
  // Without the other columns: rows cannot hold the values of `large`.
  for (const auto& row : table().filter(expression).select_columns({"id"}).take_all())
    ids.push_back(row["id"].as_int());
  return ids;
}

using Ids = std::vector<std::int64_t>;

List values_of(const std::string& expression) {
  List values;
  for (auto& row : table().with_column("made", expression).select_columns({"made"}).take_all())
    values.push_back(row["made"]);
  return values;
}

std::string type_of(const std::string& expression) {
  const std::string schema = table().with_column("made", expression).schema();
  const auto begin = schema.find("made: ") + 6;
  return schema.substr(begin, schema.size() - begin - 1);
}

}  // namespace

TEST_CASE("a filter keeps rows for which an expression is true, but not null") {
  CHECK(kept("id > 1") == Ids{2, 3});
  CHECK(kept("x > -3") == Ids{0, 2});
  CHECK(kept("not x > 0") == Ids{2, 3});
  CHECK(kept("1 <= id < 3") == Ids{1, 2});
  CHECK(kept("s == 'a' or n == 4") == Ids{0, 3});
  CHECK(kept("b and id < 3") == Ids{0});
  CHECK(kept("b or id == 1") == Ids{0, 1, 3});
  CHECK(kept("~b") == Ids{2});
  CHECK(kept("(id > 0) & b") == Ids{3});
  CHECK(kept("(id == 0) | (id == 3)") == Ids{0, 3});
  CHECK(kept("b == True") == Ids{0, 3});
  CHECK(kept("True") == Ids{0, 1, 2, 3});
  CHECK(kept("s < 'b'") == Ids{0});
  CHECK(kept("s == \"it's\"") == Ids{3});
  CHECK(kept("s == 'it' '\\'s'") == Ids{3});
  CHECK(kept("by == b'\\x00\\xff'") == Ids{1});
  CHECK(kept("by == 'a'") == Ids{0});
  CHECK(kept("f > 0.1") == Ids{0, 1, 2, 3});
  CHECK(kept("id > 0x1 and id < 1_0") == Ids{2, 3});
  CHECK(kept("id >= -9223372036854775808") == Ids{0, 1, 2, 3});
  CHECK(kept("col('if') == 4") == Ids{3});
  CHECK(kept(" \tid\n== 2 ") == Ids{2});
}

TEST_CASE("is None and in handle nulls") {
  CHECK(kept("x is None") == Ids{1});
  CHECK(kept("x == None") == Ids{1});
  CHECK(kept("list is not None") == Ids{0, 2, 3});
  CHECK(kept("n != None") == Ids{0, 2, 3});
  CHECK(kept("None == n") == Ids{});
  CHECK(kept("n in [3, 4]") == Ids{0, 3});
  CHECK(kept("n not in (3,)") == Ids{1, 2, 3});
  CHECK(kept("n in {3, None}") == Ids{0, 1});
  CHECK(kept("n in [3.0, 4.5]") == Ids{0});
  CHECK(kept("n in [-7]") == Ids{2});
  CHECK(kept("f in [0.1]") == Ids{0});
  CHECK(kept("s in ['a', 'b']") == Ids{0});
  CHECK(kept("s in []") == Ids{});
  CHECK(kept("is_null(s) or is_nan(x)") == Ids{1, 3});
  CHECK(kept("is_valid(b)") == Ids{0, 2, 3});
}

TEST_CASE("NaN and zeros compare as in numpy") {
  const auto rows =
      data::from_columns({{"f", List{-1.0, 0.0, -0.0, 2.0, 3.0, std::nan("")}}, {"id", List{0, 1, 2, 3, 4, 5}}});
  const auto ids = [&](const std::string& text) {
    Ids found;
    for (const auto& row : rows.filter(text).take_all()) found.push_back(row["id"].as_int());
    return found;
  };
  CHECK(ids("not (f < 0)") == Ids{1, 2, 3, 4, 5});
  CHECK(ids("f != 3.0") == Ids{0, 1, 2, 3, 5});
  CHECK(ids("not (f >= -1)") == Ids{5});
  CHECK(ids("f != f") == Ids{5});
  CHECK(ids("f not in [3.0]") == Ids{0, 1, 2, 3, 5});
  CHECK(ids("f in [0.0]") == Ids{1, 2});
  CHECK(ids("f in [0]") == Ids{1, 2});
}

TEST_CASE("arithmetic and functions") {
  CHECK(kept("id * 2 + 1 == 7") == Ids{3});
  CHECK(kept("id / 2 == 0.5") == Ids{1});
  CHECK(values_of("n // 2") == List{1.0, nullptr, -4.0, 2.0});
  CHECK(values_of("n % 4") == List{3.0, nullptr, 1.0, 0.0});
  CHECK(values_of("id ** 2") == List{0, 1, 4, 9});
  CHECK(values_of("2 ** 3 ** 1") == List{8, 8, 8, 8});
  CHECK(values_of("-id ** 2") == List{0, -1, -4, -9});
  CHECK(values_of("abs(n)") == List{3, nullptr, 7, 4});
  CHECK(values_of("-n") == List{-3, nullptr, 7, -4});
  CHECK(values_of("byte - 3") == List{-3, -2, -1, 252});
  CHECK(values_of("length(s)") == List{1, nullptr, 2, 4});
  CHECK(values_of("upper(s)") == List{"A", nullptr,
                                      "\xc3\x84"
                                      "B",
                                      "IT'S"});
  CHECK(values_of("lower(s)") == List{"a", nullptr,
                                      "\xc3\xa4"
                                      "b",
                                      "it's"});
  CHECK(values_of("b") == List{true, nullptr, false, true});
  CHECK(values_of("id > 1") == List{false, false, true, true});
  CHECK(values_of("'a'") == List{"a", "a", "a", "a"});
  CHECK(values_of("None") == List{nullptr, nullptr, nullptr, nullptr});
  CHECK(values_of("list").at(3) == Value(List{2, 3}));
}

TEST_CASE("result types match Arrow's") {
  CHECK(type_of("id + 1") == "int64");
  CHECK(type_of("small * 1") == "int8");
  CHECK(type_of("small - 1000") == "int16");
  CHECK(type_of("byte + 1") == "int16");
  CHECK(type_of("byte + small") == "int16");
  CHECK(type_of("f * 0.5") == "float");
  CHECK(type_of("f + 0.1") == "double");
  CHECK(type_of("id * 0.1") == "double");
  CHECK(type_of("id / 2") == "double");
  CHECK(type_of("length(s)") == "int64");  // of a large_string
  CHECK(type_of("id in [1]") == "bool");
  CHECK(error_of([] { values_of("small + 1"); }).find("small + (1)): overflow") != std::string::npos);
  CHECK(error_of([] { values_of("id / (id - 2)"); }).find("divide by zero") != std::string::npos);
  CHECK(error_of([] { values_of("id ** -1"); }).find("negative integer powers are not allowed") != std::string::npos);
}

TEST_CASE("built expressions equal parsed ones") {
  CHECK(kept(col("id") > 1) == Ids{2, 3});
  CHECK(kept(col("s") == "a" || col("n") == 4) == Ids{0, 3});
  CHECK(kept(!(col("x") > 0) && col("id") < 3) == Ids{2});
  CHECK(kept(col("x").is_null()) == Ids{1});
  CHECK(kept(col("x") == nullptr) == Ids{1});
  CHECK(kept(col("n").is_in({3, nullptr})) == Ids{0, 1});
  CHECK(kept(lit(2) <= col("id") && lit(true)) == Ids{2, 3});
  CHECK(kept(-col("n") + col("n").abs() * 2 == 21) == Ids{2});
  CHECK(kept(col("s").lower() == "\xc3\xa4"
                                 "b") == Ids{2});
  CHECK((col("x") + 1 > 3 && col("a b") == "it's").text() == "((x + (1)) > (3)) and (col('a b') == 'it\\'s')");
  CHECK(col("x").power(2).text() == Expression::parse("x ** 2").text());
  CHECK(col("x").floor_divided(2.5).text() == Expression::parse("x // 2.5").text());
  CHECK(error_of([] { lit(Value(List{1})); }).find("cannot hold a value of type list") != std::string::npos);
}

TEST_CASE("invalid expressions are rejected with their position") {
  const auto refusal = [](const std::string& text) { return error_of([&] { (void)Expression::parse(text); }); };
  CHECK(refusal("x >") ==
        "'x >' is not an expression: unexpected end, at position 3. Write for example: "
        "\"x > 3 and y == 'a'\"");
  CHECK(refusal("").find("unexpected end, at position 0") != std::string::npos);
  CHECK(refusal("x = 1").find("unexpected '=', at position 2") != std::string::npos);
  CHECK(refusal("(x > 1").find("unexpected end, at position 6") != std::string::npos);
  CHECK(refusal("x > 'abc").find("unterminated string, at position 4") != std::string::npos);
  CHECK(refusal("x > 12ab").find("invalid number, at position 4") != std::string::npos);
  CHECK(refusal("x > 99999999999999999999").find("too large for 64 bits, at position 4") != std::string::npos);
  CHECK(refusal("x ? y").find("unexpected character '?', at position 2") != std::string::npos);
  CHECK(refusal("x <> 1").find("unexpected '>'") != std::string::npos);
  CHECK(refusal("x y").find("unexpected 'y', at position 2") != std::string::npos);
  CHECK(refusal("x == 'a' b'b'").find("text and bytes cannot be mixed") != std::string::npos);
  CHECK(refusal("x == f'a'").find("invalid string prefix: f'...'") != std::string::npos);
  CHECK(refusal("x == '\\xz1'").find("is not followed by a valid character code") != std::string::npos);
  // Python syntax that expressions do not support.
  CHECK(refusal("y > 1 and f(x)") ==
        "'f(x)' in the expression 'y > 1 and f(x)' is not supported: the functions are col, abs, is_null, is_valid, "
        "is_nan, length, lower, upper (position 10)");
  CHECK(refusal("x in 1").find("'1' in the expression 'x in 1' is not supported: `in` needs a list") == 0);
  CHECK(refusal("x in [y]").find("`in` needs a list of values: x in [1, 2]") != std::string::npos);
  CHECK(refusal("x is 1").find("`is` works only with None: use == to compare") != std::string::npos);
  CHECK(refusal("x == [1]").find("a list may only follow `in`") != std::string::npos);
  CHECK(refusal("x.y").find("is not supported: use comparisons, and/or/not") != std::string::npos);
  CHECK(refusal("x[1]").find("is not supported") != std::string::npos);
  CHECK(refusal("+x").find("'+x' in the expression") == 0);
  CHECK(refusal("x ^ 1").find("is not supported") != std::string::npos);
  CHECK(refusal("abs(x, 1)").find("is not supported") != std::string::npos);
  CHECK(refusal("-'a'").find("it cannot be negated") != std::string::npos);
  CHECK(refusal("lambda: 1").find("unexpected 'lambda'") != std::string::npos);
  CHECK(refusal(std::string(5000, '(')).find("nested more than") != std::string::npos);
  CHECK(refusal(std::string(5000, '-') + "x").find("nested more than") != std::string::npos);
}

TEST_CASE("long expressions work, deeply nested ones are rejected") {
  std::string any = "id == 1";
  for (int i = 2; i < 3000; ++i) any += " or id == " + std::to_string(i);
  CHECK(kept(any) == Ids{1, 2, 3});
  std::string sum = "id";
  for (int i = 0; i < 3000; ++i) sum += " + 1";
  CHECK(error_of([&] { (void)Expression::parse(sum); }).find("nested more than 100 deep") != std::string::npos);
}

TEST_CASE("unsuitable columns are reported before rows are read") {
  int calls = 0;
  const auto counted = data::range(10).map([&](const Dict& row) {
    ++calls;
    return row;
  });
  const auto refusal = [&](const std::string& text) { return error_of([&] { table().filter(text).columns(); }); };
  CHECK(refusal("idd > 1").find("filter(idd > (1)): no column named 'idd'; did you mean 'id'?. The columns are id: "
                                "int64, x: double") != std::string::npos);
  CHECK(
      refusal("s > 1").find("filter(s > (1)): NotImplemented: Function 'greater' has no kernel matching input types") !=
      std::string::npos);
  CHECK(refusal("b == 1").find("has no kernel matching input types (bool, int") != std::string::npos);
  CHECK(refusal("s + 'x' == 'ax'").find("has no kernel matching input types") != std::string::npos);
  CHECK(refusal("id").find("the expression is int64, not boolean") != std::string::npos);
  CHECK(refusal("not id").find("'invert' has no kernel matching input types (int64)") != std::string::npos);
  CHECK(refusal("list == list").find("has no kernel matching") != std::string::npos);
  CHECK(refusal("lower(id) == 'a'").find("has no kernel matching input types (int64)") != std::string::npos);
  CHECK(refusal("n in ['a']").find("int64 never equals string") != std::string::npos);
  CHECK(error_of([&] {
          counted.select_columns({"id"}).filter("name == 'a'").count();
        }).find("no column named 'name'") != std::string::npos);
}

TEST_CASE("a filter by expression works on workers and counts its rows") {
  const auto chosen = data::range(100'000).filter("id % 1000 == 7");
  CHECK(chosen.count() == 100);
  std::int64_t rows = 0;
  for (const auto& shard : chosen.streaming_split(2)) {
    for (const auto& batch : shard.iter_batches()) rows += batch.rows();
  }
  CHECK(rows == 100);
}

}  // namespace dataset_expression_test
