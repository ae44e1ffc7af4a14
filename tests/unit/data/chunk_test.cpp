#include "data/chunk.h"

#include <doctest/doctest.h>

#include <functional>
#include <limits>

#include "unit/data/arrays.h"

namespace chunk_test {

using namespace trireme;
using namespace trireme::data;
using namespace trireme::tests;

namespace {

std::shared_ptr<const Schema> schema_of(const Column& table) {
  ArrowSchema c = export_schema(table);
  return *Schema::take(trireme::data::OwnedSchema(c));
}

base::Result<std::shared_ptr<const Chunk>> chunk_of(const Column& table) {
  ArrowArray c = export_array(table);
  auto taken = Chunk::take(trireme::data::OwnedArray(c), schema_of(table));
  CHECK(released(c));
  return taken;
}

// The error after `breaking` the only column.
std::string broken(const Column& column, const std::function<void(ArrowArray&)>& breaking) {
  const Column table = table_of({column});
  ArrowArray c = export_array(table);
  breaking(*c.children[0]);
  auto taken = Chunk::take(trireme::data::OwnedArray(c), schema_of(table));
  REQUIRE_FALSE(taken.ok());
  return taken.error().message();
}

std::int64_t bytes_of(const Column& column) { return (*chunk_of(table_of({column})))->bytes(); }

}  // namespace

TEST_CASE("a chunk exposes its columns, and its last owner releases them") {
  const Column table = table_of({int64_column("a", {1, 2, 3}), string_column("b", {{"x", std::nullopt, "yz"}})});
  const auto buffer = table.children[0].buffers[1];
  const long before = buffer.use_count();
  auto chunk = *chunk_of(table);
  CHECK(chunk->rows() == 3);
  CHECK(chunk->row_offset() == 0);
  CHECK(chunk->column(1).null_count == 1);
  CHECK(chunk->schema()->fields()[1].name == "b");
  CHECK(buffer.use_count() == before + 1);
  auto another = chunk;
  chunk.reset();
  CHECK(buffer.use_count() == before + 1);
  another.reset();
  CHECK(buffer.use_count() == before);
}

TEST_CASE("a rejected chunk is released") {
  Column table = table_of({int64_column("a", {1, 2, 3})});
  table.children[0].length = 2;
  const auto buffer = table.children[0].buffers[1];
  const long before = buffer.use_count();
  CHECK(chunk_of(table).error().message() == "column 'a' has 2 rows, but the record batch has 3");
  CHECK(buffer.use_count() == before);
}

TEST_CASE("the bytes of a chunk are those of its rows") {
  const Column numbers = int64_column("a", {1, 2, 3, 4});
  CHECK(bytes_of(numbers) == 32);
  CHECK(bytes_of(slice(numbers, 1, 2)) == 16);
  CHECK(bytes_of(with_nulls(numbers, {true, false, true, true})) == 33);
  const Column texts = string_column("b", std::vector<std::string>{"abc", "", "de", "fg"});
  CHECK(bytes_of(texts) == 5 * 4 + 7);
  CHECK(bytes_of(slice(texts, 2, 1)) == 2 * 4 + 2);
  CHECK(bytes_of(bool_column("c", std::vector<bool>(20))) == 3);
  CHECK(bytes_of(slice(fixed_list_column("d", float_column("item", {1, 2, 3, 4, 5, 6}), 2), 1, 2)) == 16);
  CHECK(bytes_of(slice(list_column("e", float_column("item", {1, 2, 3, 4, 5, 6}), {1, 4, 6}), 1, 1)) == 2 * 4 + 12);
  CHECK(bytes_of(slice(fixed_list_column("d", texts, 2), 1, 1)) == 3 * 4 + 4);
  CHECK(bytes_of(slice(struct_column("e", {texts}), 2, 1)) == 2 * 4 + 2);
  CHECK(bytes_of(dictionary_column("f", {0, 0, 1}, texts)) == 3 * 4 + 27);
  CHECK(bytes_of({"g", "n", 5, {}}) == 0);
  Column table = table_of({numbers});
  table.offset = 1;
  table.length = 2;
  const auto chunk = *chunk_of(table);
  CHECK(chunk->bytes() == 16);
  CHECK(chunk->row_offset() == 1);
  CHECK(chunk->rows() == 2);
}

TEST_CASE("an empty array needs no buffers") {
  Column empty_text = string_column("a", std::vector<std::string>{});
  empty_text.buffers = {nullptr, nullptr, nullptr};
  Column empty_list = list_column("b", int64_column("item", {}), {});
  empty_list.buffers = {nullptr, nullptr};
  empty_list.children[0].buffers = {nullptr, nullptr};
  Column blank_texts = string_column("a", std::vector<std::string>{"", ""});
  blank_texts.buffers[2] = nullptr;
  CHECK(chunk_of(table_of({empty_text, empty_list})).ok());
  CHECK(chunk_of(table_of({blank_texts})).ok());
}

TEST_CASE("an invalid array is rejected and not read") {
  const Column numbers = int64_column("a", {1, 2, 3});
  const Column texts = string_column("a", std::vector<std::string>{"abc", "", "de"});
  const Column lists = list_column("a", numbers, {1, 2, 3});
  const Column labels = dictionary_column("a", {0, 1, 2}, texts);
  const std::string front = "column 'a' (int64): invalid array: ";
  CHECK(broken(numbers, [](auto& c) { c.length = -1; }) == front + "length -1, offset 0");
  CHECK(broken(numbers, [](auto& c) { c.offset = -1; }) == front + "length 3, offset -1");
  CHECK(broken(numbers, [](auto& c) { c.offset = std::numeric_limits<std::int64_t>::max() - 1; }).starts_with(front));
  CHECK(broken(numbers, [](auto& c) { c.offset = std::int64_t{1} << 61; }).starts_with(front));
  CHECK(broken(numbers, [](auto& c) { c.n_buffers = 1; }) == front + "1 buffers, expected 2");
  CHECK(broken(numbers, [](auto& c) { c.buffers = nullptr; }) == front + "2 buffers, expected 2");
  CHECK(broken(numbers, [](auto& c) { c.buffers[1] = nullptr; }) == front + "it has no values");
  CHECK(broken(numbers, [](auto& c) { c.null_count = 2; }) == front + "2 nulls, but no validity bitmap");
  CHECK(broken(numbers, [](auto& c) { c.null_count = 4; }) == front + "4 nulls in 3 rows");
  CHECK(broken(numbers, [](auto& c) { c.n_children = 1; }) == front + "1 children, expected 0");
  CHECK(broken(texts, [](auto& c) { c.buffers[1] = nullptr; }).ends_with("it has no offsets"));
  CHECK(broken(texts, [](auto& c) { c.buffers[2] = nullptr; }).ends_with("it has offsets but no text"));
  CHECK(broken(lists, [](auto& c) { c.children = nullptr; }).ends_with("1 children, expected 1"));
  CHECK(broken(lists, [](auto& c) { c.children[0]->length = 2; }).ends_with("2 items, expected 3"));
  CHECK(broken(lists, [](auto& c) { c.n_children = 0; }).ends_with("0 children, expected 1"));
  CHECK(broken(labels, [](auto& c) { c.dictionary->length = 2; }).ends_with("index 2 into a dictionary of 2 values"));
  CHECK(broken(labels, [](auto& c) { c.buffers[1] = nullptr; }).ends_with("it has no indices"));
  CHECK(broken(labels, [](auto& c) { c.dictionary->n_buffers = 0; }).ends_with("0 buffers, expected 3"));
  CHECK(broken(fixed_list_column("a", numbers, 1), [](auto& c) { c.length = 4; }).ends_with("3 items, expected 4"));
  CHECK(broken(struct_column("a", {numbers}), [](auto& c) { c.offset = 1; }).ends_with("3 items, expected 4"));
}

TEST_CASE("a missing child or dictionary is rejected") {
  const Column table = table_of(
      {list_column("a", int64_column("item", {1}), {1}), dictionary_column("b", {0}, int64_column("values", {1}))});
  const auto schema = schema_of(table);
  ArrowArray no_child = export_array(table);
  no_child.children[0]->children[0] = nullptr;
  CHECK(Chunk::take(trireme::data::OwnedArray(no_child), schema).error().message() ==
        "column 'a' (list<int64>): invalid array: child 0 is missing");
  ArrowArray no_dictionary = export_array(table);
  no_dictionary.children[1]->dictionary = nullptr;
  CHECK(Chunk::take(trireme::data::OwnedArray(no_dictionary), schema).error().message() ==
        "column 'b' (dictionary<int64>): invalid array: it has no dictionary");
  CHECK(Chunk::take(trireme::data::OwnedArray(no_dictionary), schema).error().message() ==
        "a record batch was released before it was read");
}

TEST_CASE("offsets and indices must be valid, except under a null") {
  CHECK(chunk_of(table_of({list_column("a", int64_column("item", {1, 2, 3}), {2, 1, 3})})).error().message() ==
        "column 'a' (list<int64>): invalid array: its offsets are not in order");
  Column negative = string_column("a", std::vector<std::string>{"x", "y"});
  negative.buffers[1] = buffer_of(std::vector<std::int32_t>{-1, 1, 2});
  CHECK_FALSE(chunk_of(table_of({negative})).ok());
  const Column odd = dictionary_column("a", {0, -7, 99}, int64_column("values", {5}));
  CHECK(chunk_of(table_of({odd})).error().message().ends_with("index -7 into a dictionary of 1 value"));
  CHECK(chunk_of(table_of({with_nulls(odd, {true, false, false})})).ok());
}

TEST_CASE("a record batch cannot have null rows") {
  const Column table = table_of({int64_column("a", {1, 2, 3})});
  CHECK(chunk_of(with_nulls(table, {true, false, true})).error().message() ==
        "a record batch could not be read: 1 of its 3 rows are null");
  Column unknown = with_nulls(table, {true, true, true});
  unknown.null_count = -1;
  CHECK(chunk_of(unknown).ok());
}

TEST_CASE("a record batch has as many columns as its schema") {
  ArrowArray c = export_array(table_of({int64_column("a", {1})}));
  const auto schema = schema_of(table_of({int64_column("a", {1}), int64_column("b", {1})}));
  CHECK(Chunk::take(trireme::data::OwnedArray(c), schema).error().message() ==
        "a record batch could not be read: invalid array: 1 children, expected 2");
}

}  // namespace chunk_test
