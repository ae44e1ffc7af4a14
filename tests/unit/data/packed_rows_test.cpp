#include "data/packed_rows.h"

#include <doctest/doctest.h>

#include <random>

#include "data/batch.h"
#include "unit/data/arrays.h"

namespace packed_rows_test {

using namespace trireme;
using namespace trireme::data;
using namespace trireme::tests;

namespace {

template <typename T>
Column random_column(std::mt19937& random, const std::string& name, const std::string& format, std::int64_t rows) {
  std::vector<T> values;
  std::vector<bool> valid;
  for (std::int64_t i = 0; i < rows; ++i) {
    values.push_back(static_cast<T>(random()));
    valid.push_back(random() % 5 != 0);
  }
  Column column = fixed_column(name, format, values);
  return random() % 2 ? with_nulls(column, valid) : column;
}

std::shared_ptr<const Chunk> chunk_of(const Column& table, std::shared_ptr<const Schema> schema = {}) {
  if (!schema) {
    ArrowSchema exported = export_schema(table);
    schema = Schema::take(trireme::data::OwnedSchema(exported)).value();
  }
  ArrowArray array = export_array(table);
  return Chunk::take(trireme::data::OwnedArray(array), schema).value();
}

// Values and nulls of a batch, in Arrow's layout.
std::vector<std::string> cells_of(const Batch& batch) {
  auto exported = batch.exported();
  ArrowArray array = exported.array.give();
  ArrowSchema schema = exported.schema.give();
  std::vector<std::string> cells;
  for (std::int64_t c = 0; c < array.n_children; ++c) {
    const ArrowArray& column = *array.children[c];
    const auto width = batch.schema()->fields()[static_cast<std::size_t>(c)].type.width;
    for (std::int64_t i = 0; i < column.length; ++i) {
      const auto* validity = static_cast<const std::uint8_t*>(column.buffers[0]);
      const bool valid = !validity || (validity[i / 8] >> (i % 8) & 1);
      cells.push_back(
          valid ? std::string(static_cast<const char*>(column.buffers[1]) + i * width, static_cast<std::size_t>(width))
                : "null");
    }
    cells.push_back(std::to_string(column.null_count));
  }
  array.release(&array);
  schema.release(&schema);
  return cells;
}

}  // namespace

TEST_CASE("rows stored row by row equal those stored in columns") {
  std::mt19937 random(5);
  for (int trial = 0; trial < 100; ++trial) {
    std::shared_ptr<const Schema> schema;
    std::vector<std::shared_ptr<const Chunk>> columns, packed;
    for (int c = 0; c < 3; ++c) {
      const std::int64_t rows = random() % 600 + 1;
      const Column table =
          table_of({random_column<float>(random, "a", "f", rows), random_column<std::int8_t>(random, "b", "c", rows),
                    random_column<double>(random, "c", "g", rows), random_column<std::int16_t>(random, "d", "s", rows),
                    random_column<std::int64_t>(random, "e", "l", rows)});
      const Column part = slice(table, random() % rows, 0);
      columns.push_back(chunk_of(slice(table, part.offset, rows - part.offset), schema));
      schema = columns.front()->schema();
      auto layout = RowLayout::of(*schema);
      REQUIRE(layout);
      packed.push_back(Chunk::of(PackedRows(*columns.back(), 0, columns.back()->rows(), *layout), schema));
      CHECK(packed.back()->rows() == columns.back()->rows());
    }
    std::vector<Run> runs;
    for (int i = 0; i < 200; ++i) {
      const auto chunk = static_cast<std::uint32_t>(random() % 3);
      const std::int64_t row = random() % columns[chunk]->rows();
      runs.push_back({chunk, row, std::min<std::int64_t>(random() % 3, columns[chunk]->rows() - row)});
    }
    auto expected = Batch::gather(columns, runs);
    auto found = Batch::gather(packed, runs);
    REQUIRE(found);
    CHECK(found->rows() == expected->rows());
    CHECK(cells_of(*found) == cells_of(*expected));
  }
}

TEST_CASE("only tables of a few numbers are stored row by row") {
  const auto layout = [](std::vector<Column> columns) {
    ArrowSchema exported = export_schema(table_of(std::move(columns)));
    return RowLayout::of(*Schema::take(trireme::data::OwnedSchema(exported)).value());
  };
  CHECK(layout({float_column("a", {1}), int64_column("b", {1})})->row_bytes == 24);
  CHECK_FALSE(layout({float_column("a", {1})}));
  CHECK_FALSE(layout({float_column("a", {1}), string_column("b", std::vector<std::string>{"x"})}));
  CHECK_FALSE(layout({float_column("a", {1}), bool_column("b", {true})}));
  CHECK_FALSE(layout(std::vector<Column>(65, float_column("a", {1}))));
  CHECK_FALSE(layout(std::vector<Column>(64, double_column("a", {1}))));
}

}  // namespace packed_rows_test
