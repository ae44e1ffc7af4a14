#include "data/schema.h"

#include <doctest/doctest.h>

#include "unit/data/arrays.h"

namespace schema_test {

using namespace trireme;
using namespace trireme::data;
using namespace trireme::tests;

namespace {

using Shape = std::vector<std::int64_t>;

base::Result<std::shared_ptr<const Schema>> schema_of(std::vector<Column> columns) {
  Column table = table_of(std::move(columns));
  ArrowSchema c = export_schema(table);
  auto taken = Schema::take(trireme::data::OwnedSchema(c));
  CHECK(released(c));
  return taken;
}

std::string error_of(std::vector<Column> columns) {
  auto taken = schema_of(std::move(columns));
  REQUIRE_FALSE(taken.ok());
  return taken.error().message();
}

Column of_format(std::string format, std::vector<Column> children = {}) {
  return {"x", std::move(format), 0, {}, std::move(children)};
}

std::string text_of(Column column) { return (*schema_of({std::move(column)}))->fields()[0].type.text(); }

Column tensor_column(std::string metadata, std::int64_t length) {
  Column made = of_format("+w:" + std::to_string(length), {of_format("f")});
  made.metadata = metadata_of({{"mine", "kept"},
                               {"ARROW:extension:name", "arrow.fixed_shape_tensor"},
                               {"ARROW:extension:metadata", std::move(metadata)}});
  return made;
}

Shape shape_of(Column column) { return (*schema_of({std::move(column)}))->fields()[0].tensor_shape; }

Column dictionary_of(std::string index_format, Column values) {
  Column made = of_format(std::move(index_format));
  made.dictionary = std::make_shared<Column>(std::move(values));
  return made;
}

}  // namespace

TEST_CASE("types have readable names") {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"n", "null"},
      {"b", "bool"},
      {"c", "int8"},
      {"L", "uint64"},
      {"e", "halffloat"},
      {"g", "double"},
      {"u", "string"},
      {"Z", "large_binary"},
      {"w:7", "fixed_size_binary[7]"},
      {"d:10,2", "decimal128(10, 2)"},
      {"d:40,-3,256", "decimal256(40, -3)"},
      {"tdD", "date32[day]"},
      {"tsu:", "timestamp[us]"},
      {"tsn:Europe/Berlin", "timestamp[ns, tz=Europe/Berlin]"},
      {"tDs", "duration[s]"},
  };
  for (const auto& [format, name] : names) CHECK(text_of(of_format(format)) == name);
  CHECK(text_of(of_format("+l", {of_format("u")})) == "list<string>");
  CHECK(text_of(of_format("+w:10", {of_format("f")})) == "fixed_size_list<float>[10]");
  CHECK(text_of(of_format("+L", {of_format("+s", {of_format("i"), of_format("b")})})) ==
        "large_list<struct<int32, bool>>");
  CHECK(text_of(of_format("+m", {of_format("+s", {of_format("u"), of_format("g")})})) == "map<string, double>");
  CHECK(text_of(dictionary_of("c", of_format("u"))) == "dictionary<string>");
}

TEST_CASE("a schema has its columns' types and finds them by name") {
  Column label = dictionary_of("S", string_column("", std::vector<std::string>{}));
  label.name = "label";
  const auto schema = *schema_of({int64_column("id", {}), of_format("d:10,2,256"), label});
  REQUIRE(schema->fields().size() == 3);
  CHECK(schema->fields()[0].type == Type{Kind::kFixed, "l", 8, 0, {}, false, ""});
  CHECK(schema->fields()[1].type.width == 32);
  CHECK(schema->fields()[2].type == Type{Kind::kText, "u", 4, 0, {}, true, "S"});
  CHECK(schema->find("label") == 2);
  CHECK_FALSE(schema->find("labels"));
}

TEST_CASE("a schema has the shape of tensors") {
  CHECK(shape_of(of_format("f")) == Shape{});
  CHECK(shape_of(of_format("+w:3", {of_format("f")})) == Shape{3});
  CHECK(shape_of(of_format("+w:3", {of_format("+w:4", {of_format("b")})})) == Shape{3, 4});
  CHECK(shape_of(of_format("+w:3", {of_format("u")})) == Shape{});
  CHECK(shape_of(of_format("+l", {of_format("f")})) == Shape{});
  CHECK(shape_of(tensor_column(R"({"shape": [2, 3]})", 6)) == Shape{2, 3});
  CHECK(shape_of(tensor_column(R"({"shape": [2, 3], "permutation": [0, 1], "dim_names": ["H", "W"]})", 6)) ==
        Shape{2, 3});
  CHECK(shape_of(tensor_column(R"({"shape": [2, 3], "permutation": [1, 0]})", 6)) == Shape{});
  SUBCASE("inconsistent metadata is ignored") {
    for (const char* metadata : {"", "[]", "{", R"({"shape": 6})", R"({"shape": [2, 4]})", R"({"shape": [-2, -3]})",
                                 R"({"shape": [2.0, 3]})", R"({"shape": [4294967296, 4294967296]})"}) {
      CAPTURE(metadata);
      CHECK(shape_of(tensor_column(metadata, 6)) == Shape{6});
    }
  }
}

TEST_CASE("an unsupported type is rejected with its column and an alternative") {
  CHECK(error_of({int64_column("id", {}), of_format("vu")}) ==
        "column 'x': string_view is not supported; cast it to string");
  CHECK(error_of({of_format("+ud:0,1", {of_format("i"), of_format("u")})}) ==
        "column 'x': dense_union is not supported; cast it to string, or to a struct");
  CHECK(error_of({of_format("+r", {of_format("i"), of_format("u")})}) ==
        "column 'x': run_end_encoded is not supported; cast it to the type of its values");
  Column inner = of_format("vz");
  inner.name = "y";
  CHECK(error_of({of_format("+l", {of_format("+s", {inner})})}) ==
        "column 'x': its items: its field 'y': binary_view is not supported; cast it to binary");
  CHECK(error_of({of_format("w:-3")}) == "column 'x': unknown Arrow format 'w:-3'; cast it to string");
  CHECK(error_of({dictionary_of("i", dictionary_of("i", of_format("u")))}) ==
        "column 'x': a dictionary of dictionaries is not supported; cast it to its values");
  CHECK(error_of({dictionary_of("g", of_format("u"))}).find("'g'") != std::string::npos);
}

TEST_CASE("an invalid schema is rejected") {
  for (const char* format : {"", "q", "w:", "w:x", "+w:", "+w:99999999999", "d:1", "d:1,2,77", "l ", "tsx:", "+s:"}) {
    CAPTURE(format);
    CHECK_FALSE(schema_of({of_format(format)}).ok());
  }
  CHECK(error_of({of_format("+l")}) == "column 'x': invalid schema: Arrow format '+l' with 0 children");
  CHECK(error_of({of_format("i", {of_format("i")})}).find("with 1 children") != std::string::npos);

  Column deep = of_format("i");
  for (int i = 0; i < 100; ++i) deep = of_format("+l", {deep});
  CHECK(error_of({deep}).find("types nested more than 32 deep") != std::string::npos);

  ArrowSchema no_table = export_schema(int64_column("x", {}));
  CHECK(Schema::take(trireme::data::OwnedSchema(no_table)).error().message() ==
        "expected an Arrow struct of columns ('+s') as the table, got 'l'");
  CHECK(Schema::take(trireme::data::OwnedSchema(no_table)).error().message() ==
        "the schema of a table was released before it was read");

  ArrowSchema holes = export_schema(table_of({int64_column("x", {})}));
  ArrowSchema* column = holes.children[0];
  holes.children[0] = nullptr;
  CHECK_FALSE(Schema::take(trireme::data::OwnedSchema(holes)).ok());
  CHECK(column != nullptr);

  ArrowSchema no_format = export_schema(table_of({int64_column("x", {})}));
  no_format.children[0]->format = nullptr;
  no_format.children[0]->name = nullptr;
  CHECK(Schema::take(trireme::data::OwnedSchema(no_format)).error().message() ==
        "column '': invalid schema: it has no format");
}

TEST_CASE("the difference of two schemas is the first column that differs") {
  const auto schema = *schema_of({int64_column("a", {}), string_column("b", std::vector<std::string>{})});
  const auto difference = [&](std::vector<Column> columns) {
    auto same = (*schema_of(std::move(columns)))->check_same(*schema);
    return same ? std::string() : same.error().message();
  };
  const Column a = int64_column("a", {});
  const Column b = string_column("b", std::vector<std::string>{});
  CHECK(difference({a, b}).empty());
  CHECK(difference({a, double_column("b", {})}) == "column 'b' is double, but string in the others");
  CHECK(difference({a}) == "column 'b' is only in the others");
  CHECK(difference({a, b, int64_column("c", {})}) == "column 'c' is not in the others");
  CHECK(difference({b, a}) == "column 1 is 'b', but 'a' in the others");
  CHECK(difference({a, int64_column("c", {})}) == "column 'b' is only in the others");
}

TEST_CASE("schemas with the same memory layout and a different meaning differ") {
  const auto difference = [](Column ours, Column theirs) {
    auto same = (*schema_of({std::move(ours)}))->check_same(**schema_of({std::move(theirs)}));
    return same ? std::string() : same.error().message();
  };
  CHECK(difference(tensor_column(R"({"shape": [2, 3]})", 6), tensor_column(R"({"shape": [3, 2]})", 6)) ==
        "column 'x' has the shape [2, 3], but [3, 2] in the others");
  const auto point = [](std::string first, std::string second) {
    return struct_column("p", {int64_column(std::move(first), {}), int64_column(std::move(second), {})});
  };
  CHECK(difference(point("x", "y"), point("x", "y")).empty());
  CHECK(difference(point("y", "x"), point("x", "y")) == "column 'p' has a field 'y', but 'x' in the others");
  CHECK(difference(dictionary_of("i", point("y", "x")), dictionary_of("i", point("x", "y"))) ==
        "column 'x' has a field 'y', but 'x' in the others");
  CHECK(difference(list_column("l", int64_column("item", {}), {}), list_column("l", int64_column("element", {}), {}))
            .empty());
}

TEST_CASE("a schema is exported with metadata and without dictionaries") {
  Column label = dictionary_of("i", string_column("values", std::vector<std::string>{}));
  label.flags = ARROW_FLAG_DICTIONARY_ORDERED;
  Column table = table_of({tensor_column(R"({"shape": [2, 3]})", 6), label});
  table.metadata = metadata_of({{"pandas", "{}"}});
  ArrowSchema c = export_schema(table);
  auto schema = *Schema::take(trireme::data::OwnedSchema(c));
  ArrowSchema out = schema->exported().give();
  schema.reset();
  CHECK(std::string_view(out.metadata, table.metadata.size()) == table.metadata);
  REQUIRE(out.n_children == 2);
  CHECK(std::string_view(out.children[0]->metadata, table.children[0].metadata.size()) == table.children[0].metadata);
  CHECK(std::string_view(out.children[0]->children[0]->format) == "f");
  CHECK(std::string_view(out.children[1]->format) == "u");
  CHECK(std::string_view(out.children[1]->name) == "x");
  CHECK(out.children[1]->dictionary == nullptr);
  CHECK(out.children[1]->flags == ARROW_FLAG_NULLABLE);

  // A child may be moved out, and outlives the rest.
  ArrowSchema moved = *out.children[0];
  out.children[0]->release = nullptr;
  out.release(&out);
  CHECK(released(out));
  CHECK(std::string_view(moved.format) == "+w:6");
  moved.release(&moved);
}

TEST_CASE("invalid metadata is ignored") {
  Column table = table_of({int64_column("x", {})});
  const std::vector<std::int32_t> numbers = {1, -5};
  table.metadata = std::string(reinterpret_cast<const char*>(numbers.data()), 8);
  ArrowSchema c = export_schema(table);
  ArrowSchema out = (*Schema::take(trireme::data::OwnedSchema(c)))->exported().give();
  CHECK(out.metadata == nullptr);
  out.release(&out);
}

}  // namespace schema_test
