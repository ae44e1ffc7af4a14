#include "data/batch.h"

#include <doctest/doctest.h>

#include <numeric>
#include <random>

#include "unit/data/arrays.h"
#include "unit/data/cells.h"

namespace batch_test {

using namespace trireme;
using namespace trireme::data;
using namespace trireme::tests;

namespace {

using Chunks = std::vector<std::shared_ptr<const Chunk>>;
using Runs = std::vector<Run>;
using Shape = std::vector<std::int64_t>;

std::shared_ptr<const Schema> schema_of(const Column& table) {
  ArrowSchema c = export_schema(table);
  return *Schema::take(trireme::data::OwnedSchema(c));
}

std::shared_ptr<const Chunk> chunk_of(const Column& table) {
  ArrowArray c = export_array(table);
  auto taken = Chunk::take(trireme::data::OwnedArray(c), schema_of(table));
  REQUIRE_MESSAGE(taken.ok(), taken.error().message());
  return *taken;
}

// A batch as an Arrow reader sees it.
struct Exported {
  ArrowArray array;
  ArrowSchema schema;

  explicit Exported(const Batch& batch) {
    auto record = batch.exported();
    array = record.array.give();
    schema = record.schema.give();
  }
  Exported(const Exported&) = delete;
  Exported& operator=(const Exported&) = delete;
  ~Exported() {
    array.release(&array);
    schema.release(&schema);
  }

  std::vector<std::string> cells(std::int64_t column) const {
    std::vector<std::string> made;
    for (std::int64_t i = 0; i < array.length; ++i) {
      made.push_back(cell(*schema.children[column], *array.children[column], i));
    }
    return made;
  }
};

// The cells of the only column.
std::vector<std::string> gathered(const std::vector<Column>& columns, const Runs& runs) {
  Chunks chunks;
  for (const auto& column : columns) chunks.push_back(chunk_of(table_of({column})));
  auto batch = Batch::gather(chunks, runs);
  REQUIRE_MESSAGE(batch.ok(), batch.error().message());
  return Exported(*batch).cells(0);
}

Batch whole(const Column& column) {
  const Chunks chunks = {chunk_of(table_of({column}))};
  return *Batch::gather(chunks, Runs{{0, 0, column.length}});
}

std::string tensor_error(const Column& column) {
  auto tensor = whole(column).tensor(0);
  REQUIRE_FALSE(tensor.ok());
  return tensor.error().message();
}

using Cells = std::vector<std::string>;

}  // namespace

TEST_CASE("rows of several chunks are in the order of the runs") {
  const Chunks chunks = {
      chunk_of(
          table_of({row_numbers("id", 0, 5), string_column("t", std::vector<std::string>{"a", "b", "c", "d", "e"})})),
      chunk_of(table_of({row_numbers("id", 10, 2), string_column("t", std::vector<std::string>{"xx", "yy"})})),
  };
  const auto batch = *Batch::gather(chunks, Runs{{1, 1, 1}, {0, 2, 3}, {0, 0, 0}, {1, 0, 2}, {0, 0, 1}});
  CHECK(batch.rows() == 7);
  CHECK(*batch.tensor(0) == Tensor::of(std::vector<std::int64_t>{11, 2, 3, 4, 10, 11, 0}));
  CHECK(*batch.strings(1) == std::vector<std::string_view>{"yy", "c", "d", "e", "xx", "yy", "a"});
  CHECK(batch.bytes() == 7 * 8 + 8 * 4 + 10);
  CHECK(batch.schema() == chunks[0]->schema());
}

TEST_CASE("the offset of a record batch applies to its columns") {
  Column table = table_of({row_numbers("id", 0, 6), fixed_list_column("l", row_numbers("item", 0, 12), 2)});
  table.offset = 2;
  table.length = 3;
  const Chunks chunks = {chunk_of(table)};
  const auto batch = *Batch::gather(chunks, Runs{{0, 2, 1}, {0, 0, 2}});
  CHECK(*batch.tensor(0) == Tensor::of(std::vector<std::int64_t>{4, 2, 3}));
  CHECK(*batch.tensor(1) == Tensor::of(std::vector<std::int64_t>{8, 9, 4, 5, 6, 7}, {3, 2}));
}

TEST_CASE("nulls stay nulls, and a batch without nulls has no bitmap") {
  const Column numbers = with_nulls(fixed_column<std::int8_t>("a", "c", {1, 2, 3, 4}), {true, false, true, true});
  const Column plain = fixed_column<std::int8_t>("a", "c", {5, 6});
  CHECK(gathered({numbers, plain}, {{1, 0, 2}, {0, 1, 2}}) == Cells{"05", "06", "null", "03"});
  const Chunks chunks = {chunk_of(table_of({numbers}))};
  const Exported some(*Batch::gather(chunks, Runs{{0, 0, 4}}));
  CHECK(some.array.children[0]->null_count == 1);
  const Exported none(*Batch::gather(chunks, Runs{{0, 2, 2}}));
  CHECK(none.array.children[0]->null_count == 0);
  CHECK(none.array.children[0]->buffers[0] == nullptr);
}

TEST_CASE("dictionaries are resolved, each chunk by its own") {
  const Column a =
      with_nulls(dictionary_column("d", {1, 9, 0}, string_column("", {{"x", std::nullopt}})), {true, false, true});
  const Column b = dictionary_column("d", {0, 0, 1}, string_column("", std::vector<std::string>{"p", "q"}));
  CHECK(gathered({a, b}, {{0, 0, 3}, {1, 1, 2}}) == Cells{"null", "null", "'x'", "'p'", "'q'"});
  // Null indices in lists, structs and lists of fixed size.
  const auto nulled = [](Column values) {
    return with_nulls(dictionary_column("d", {0, 7, 1}, std::move(values)), {true, false, true});
  };
  const Column bytes = fixed_column<std::uint8_t>("item", "C", {1, 2, 3, 4});
  CHECK(gathered({nulled(list_column("", bytes, {3, 4}))}, {{0, 0, 3}}) == Cells{"[01, 02, 03, ]", "null", "[04, ]"});
  CHECK(gathered({nulled(fixed_list_column("", bytes, 2))}, {{0, 0, 3}}) == Cells{"[01, 02, ]", "null", "[03, 04, ]"});
  CHECK(gathered({nulled(struct_column("", {bytes, bool_column("b", {true, false, true, true})}))}, {{0, 0, 3}}) ==
        Cells{"{01, true, }", "null", "{02, false, }"});
  // The dictionary may have no value at all.
  for (const Column& values :
       {struct_column("", {int64_column("a", {})}), fixed_list_column("", int64_column("a", {}), 2),
        string_column("", std::vector<std::string>{}), bool_column("", {})}) {
    Column nothing = values;
    for (auto& buffer : nothing.buffers) buffer = nullptr;
    for (auto& child : nothing.children) child.buffers = {nullptr, nullptr};
    const Column all_null = with_nulls(dictionary_column("d", {7, 7}, nothing), {false, false});
    CHECK(gathered({all_null}, {{0, 1, 1}, {0, 0, 2}}) == Cells{"null", "null", "null"});
  }
}

TEST_CASE("too much text or too many items for offsets is an error that names the column") {
  // Nothing is read before the sum is known, so the test needs no such text.
  Column text = string_column("essay", std::vector<std::string>{"x"});
  text.buffers[1] = buffer_of(std::vector<std::int32_t>{0, 1 << 30});
  const Chunks chunks = {chunk_of(table_of({text}))};
  CHECK(Batch::gather(chunks, Runs{{0, 0, 1}, {0, 0, 1}, {0, 0, 1}}).error().message() ==
        "column 'essay': a batch would have more than 2147483647 bytes of string; use smaller batches, or cast it to "
        "large_string");
  const Column nulls = {"item", "n", 1 << 30, {}};
  const Chunks lists = {chunk_of(table_of({list_column("l", nulls, {1 << 30})}))};
  CHECK(Batch::gather(lists, Runs{{0, 0, 1}}).ok());
  CHECK(Batch::gather(lists, Runs{{0, 0, 1}, {0, 0, 1}}).error().message() ==
        "column 'l': a batch would have more than 2147483647 items of list<null>; use smaller batches, or cast it to "
        "large_list");
}

TEST_CASE("chunks with different columns cannot be combined") {
  const Chunks chunks = {chunk_of(table_of({int64_column("a", {1})})), chunk_of(table_of({double_column("a", {1})}))};
  CHECK(Batch::gather(chunks, Runs{{0, 0, 1}, {1, 0, 1}}).error().message() ==
        "column 'a' is double, but int64 in the others");
}

TEST_CASE("runs outside of the chunks are an internal error") {
  const Chunks chunks = {chunk_of(table_of({int64_column("a", {1, 2})}))};
  for (const Run& run : Runs{{1, 0, 1}, {0, 1, 2}, {0, -1, 1}, {0, 0, -1}, {0, INT64_MAX, INT64_MAX}}) {
    CHECK_THROWS_AS((void)Batch::gather(chunks, Runs{run}), base::BrokenInvariant);
  }
}

TEST_CASE("an empty batch has its columns") {
  const Column table = table_of({int64_column("a", {}), string_column("b", std::vector<std::string>{}),
                                 fixed_list_column("c", float_column("item", {}), 3),
                                 list_column("d", struct_column("item", {bool_column("e", {})}), {}),
                                 dictionary_column("f", {}, string_column("", std::vector<std::string>{}))});
  const auto batch = Batch::empty(schema_of(table));
  CHECK(batch.rows() == 0);
  CHECK(batch.tensor(0)->shape() == Shape{0});
  CHECK(batch.tensor(2)->shape() == Shape{0, 3});
  CHECK(batch.strings(1)->empty());
  CHECK(batch.strings(4)->empty());
  const Exported exported(batch);
  CHECK(exported.array.n_children == 5);
  CHECK(value_at<std::int32_t>(exported.array.children[3]->buffers[1], 0) == 0);
  // An exported empty batch can be imported again.
  auto again = batch.exported();
  CHECK(Chunk::take(std::move(again.array), *Schema::take(std::move(again.schema))).ok());
}

TEST_CASE("a tensor shares the memory of its column and keeps it alive") {
  std::optional<Batch> batch = whole(float_column("x", {1, 2, 3}));
  const Tensor tensor = *batch->tensor(0);
  CHECK(tensor.data() == batch->tensor(0)->data());
  CHECK(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64 == 0);
  batch.reset();
  CHECK(tensor == Tensor::of(std::vector<float>{1, 2, 3}));
}

TEST_CASE("tensors have the type and shape of their column") {
  const auto described = [](const Column& column) { return whole(column).tensor(0)->describe(); };
  CHECK(described(fixed_column<std::uint16_t>("x", "e", {0, 0})) == "F16[2]");
  CHECK(described(fixed_column<std::uint8_t>("x", "C", {0, 0})) == "U8[2]");
  CHECK(described(fixed_column<std::int64_t>("x", "tsu:UTC", {0})) == "I64[1]");
  CHECK(described(fixed_column<std::int32_t>("x", "tdD", {0})) == "I32[1]");
  CHECK(described(fixed_column<std::int64_t>("x", "tDn", {0})) == "I64[1]");
  CHECK(described(dictionary_column("x", {0, 0}, double_column("", {1}))) == "F64[2]");
  CHECK(described(fixed_list_column("x", fixed_list_column("item", float_column("item", std::vector<float>(24)), 4),
                                    3)) == "F32[2, 3, 4]");
  Column image = fixed_list_column("x", float_column("item", std::vector<float>(12)), 6);
  image.metadata = metadata_of(
      {{"ARROW:extension:name", "arrow.fixed_shape_tensor"}, {"ARROW:extension:metadata", R"({"shape": [3, 2]})"}});
  CHECK(described(image) == "F32[2, 3, 2]");
  CHECK(*whole(bool_column("x", {true, false, true})).tensor(0) == Tensor::of(std::vector<bool>{true, false, true}));
  CHECK(*whole(fixed_list_column("x", bool_column("item", {true, false, false, true}), 2)).tensor(0) ==
        Tensor::of(std::vector<bool>{true, false, false, true}, {2, 2}));
}

TEST_CASE("a column that cannot be a tensor is an error with its type") {
  CHECK(tensor_error(string_column("x", std::vector<std::string>{"a"})) ==
        "column 'x' is string, which cannot be converted to a tensor; cast it to numbers, or read it as Arrow");
  CHECK(
      tensor_error(dictionary_column("x", {0}, string_column("", std::vector<std::string>{"a"}))).find(" is string,") !=
      std::string::npos);
  CHECK(tensor_error(list_column("x", float_column("item", {1, 2}), {1, 2})).find("list<float>") != std::string::npos);
  CHECK(tensor_error(fixed_column<std::int64_t>("x", "d:10,2,64", {0, 0})).find("decimal64(10, 2)") !=
        std::string::npos);
  CHECK(tensor_error(fixed_column<char>("x", "w:1", {0, 0})).find("fixed_size_binary[1]") != std::string::npos);
  const Column numbers = with_nulls(int64_column("x", {1, 2, 3, 4}), {true, false, true, false});
  CHECK(tensor_error(numbers) == "column 'x' has 2 nulls; fill or drop them first");
  CHECK(tensor_error(fixed_list_column("x", numbers, 2)) == "column 'x' has 2 nulls; fill or drop them first");
  Column turned = fixed_list_column("x", float_column("item", std::vector<float>(6)), 6);
  turned.metadata = metadata_of({{"ARROW:extension:name", "arrow.fixed_shape_tensor"},
                                 {"ARROW:extension:metadata", R"({"shape": [3, 2], "permutation": [1, 0]})"}});
  CHECK(tensor_error(turned).find("permuted") != std::string::npos);
}

TEST_CASE("strings are only available for text without nulls") {
  CHECK(whole(int64_column("x", {1})).strings(0).error().message() ==
        "column 'x' is int64, not text; cast it to string");
  CHECK(whole(string_column("x", {{"a", std::nullopt}})).strings(0).error().message() ==
        "column 'x' has 1 null; fill or drop them first");
  CHECK(*whole(string_column("x", std::vector<std::string>{"a", "", "b"}, "U")).strings(0) ==
        std::vector<std::string_view>{"a", "", "b"});
}

TEST_CASE("an exported child outlives the batch and the rest of its array") {
  std::optional<Batch> batch = whole(list_column("x", float_column("item", {1, 2, 3}), {1, 3}));
  auto exported = batch->exported();
  ArrowArray array = exported.array.give();
  ArrowSchema schema = exported.schema.give();
  batch.reset();
  ArrowArray items = *array.children[0]->children[0];
  array.children[0]->children[0]->release = nullptr;
  array.release(&array);
  schema.release(&schema);
  CHECK(released(array));
  CHECK(value_at<float>(items.buffers[1], 2) == 3);
  items.release(&items);
}

}  // namespace batch_test
