#include <doctest/doctest.h>

#include <random>

#include "data/batch.h"
#include "unit/data/arrays.h"
#include "unit/data/cells.h"

namespace gather_test {

// Compares batches of random types, nulls, offsets and runs with a reader that reads row by row.

using namespace trireme;
using namespace trireme::data;
using namespace trireme::tests;

namespace {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  // Inclusive.
  std::int64_t number(std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random_);
  }
  bool chance(int percent) { return number(1, 100) <= percent; }

  std::vector<bool> bools(std::int64_t count, int percent) {
    std::vector<bool> made;
    for (std::int64_t i = 0; i < count; ++i) made.push_back(chance(percent));
    return made;
  }

  ArrowBuffer bytes(std::int64_t count, int from = 0, int to = 255) {
    std::vector<std::uint8_t> made;
    for (std::int64_t i = 0; i < count; ++i) made.push_back(static_cast<std::uint8_t>(number(from, to)));
    return buffer_of(made);
  }

 private:
  std::mt19937_64 random_;
};

struct Fixed {
  const char* format;
  std::int64_t width;
};
constexpr Fixed kFixed[] = {{"c", 1},       {"S", 2},   {"e", 2},   {"f", 4},    {"I", 4},       {"l", 8},
                            {"tsn:UTC", 8}, {"w:3", 3}, {"w:0", 0}, {"tin", 16}, {"d:38,4", 16}, {"w:40", 40}};

// A type, as a column without rows.
Column draw_type(Draw& draw, int depth) {
  Column type;
  type.name = "x";
  const std::int64_t choice = draw.number(0, depth > 0 ? 9 : 4);
  if (choice == 0) type.format = "n";
  if (choice == 1) type.format = "b";
  if (choice == 2 || choice == 3) type.format = kFixed[draw.number(0, std::size(kFixed) - 1)].format;
  if (choice == 4) type.format = std::string(1, "uUzZ"[draw.number(0, 3)]);
  if (choice == 5) type.format = "+w:" + std::to_string(draw.number(0, 3));
  if (choice == 6) type.format = draw.chance(50) ? "+l" : "+L";
  if (choice == 7 || choice == 8) type.format = "+s";
  if (choice >= 5 && choice <= 8) {
    const std::int64_t children = choice >= 7 ? draw.number(0, 3) : 1;
    for (std::int64_t i = 0; i < children; ++i) type.children.push_back(draw_type(draw, depth - 1));
  }
  if (choice == 9) {
    type.format = std::string(1, "cCsSiIlL"[draw.number(0, 7)]);
    Column values = draw_type(draw, depth - 1);
    while (values.dictionary) values = draw_type(draw, depth - 1);
    type.dictionary = std::make_shared<Column>(std::move(values));
  }
  return type;
}

std::int64_t width_of(const std::string& format) {
  for (const auto& fixed : kFixed) {
    if (format == fixed.format) return fixed.width;
  }
  const std::size_t place = std::string("cCsSiIlL").find(format);
  return std::int64_t{1} << (place / 2);
}

// Ends of `rows` rows of text or items, starting at some offset.
std::vector<std::int64_t> draw_offsets(Draw& draw, std::int64_t rows) {
  std::vector<std::int64_t> offsets = {draw.number(0, 5)};
  for (std::int64_t i = 0; i < rows; ++i) offsets.push_back(offsets.back() + (draw.chance(30) ? 0 : draw.number(1, 5)));
  return offsets;
}

ArrowBuffer store_offsets(const std::vector<std::int64_t>& offsets, bool wide) {
  return wide ? buffer_of(offsets) : buffer_of(std::vector<std::int32_t>(offsets.begin(), offsets.end()));
}

// Rows of a type, in an array that begins before and ends after them. Values under a null are garbage.
Column draw_rows(Draw& draw, const Column& type, std::int64_t rows) {
  const std::int64_t before = draw.chance(50) ? draw.number(0, 19) : 0;
  const std::int64_t all = before + rows + (draw.chance(50) ? draw.number(0, 9) : 0);
  Column made = type;
  made.length = all;
  const std::string& format = type.format;
  if (format == "n") {
    made.null_count = all;
    return slice(made, before, rows);
  }
  made.buffers = {nullptr};
  const bool wide = format == "U" || format == "Z" || format == "+L";
  auto valid = std::vector<bool>(static_cast<std::size_t>(all), true);
  if (draw.chance(60)) valid = draw.bools(all, draw.chance(20) ? 100 : 70);
  if (type.dictionary) {
    const std::int64_t values = draw.number(1, 40);
    std::vector<std::uint8_t> indices;
    for (std::int64_t i = 0; i < all; ++i) {
      for (std::int64_t j = 0; j < width_of(format); ++j) {
        const std::int64_t index = j == 0 ? draw.number(0, values - 1) : 0;
        indices.push_back(static_cast<std::uint8_t>(valid[static_cast<std::size_t>(i)] ? index : 0xEE));
      }
    }
    made.buffers.push_back(buffer_of(indices));
    made.dictionary = std::make_shared<Column>(draw_rows(draw, *type.dictionary, values));
  } else if (format == "b") {
    made.buffers.push_back(bits_of(draw.bools(all, 50)));
  } else if (format == "+l" || format == "+L" || wide || format == "u" || format == "z") {
    const auto offsets = draw_offsets(draw, all);
    made.buffers.push_back(store_offsets(offsets, wide));
    if (type.children.empty()) made.buffers.push_back(draw.bytes(offsets.back(), 'a', 'z'));
    if (!type.children.empty()) made.children[0] = draw_rows(draw, type.children[0], offsets.back());
  } else if (format.starts_with("+w:")) {
    made.children[0] = draw_rows(draw, type.children[0], all * std::stoll(format.substr(3)));
  } else if (format == "+s") {
    for (std::size_t i = 0; i < type.children.size(); ++i) made.children[i] = draw_rows(draw, type.children[i], all);
  } else {
    made.buffers.push_back(draw.bytes(all * width_of(format)));
  }
  if (std::find(valid.begin(), valid.end(), false) != valid.end() || draw.chance(20)) made = with_nulls(made, valid);
  return slice(std::move(made), before, rows);
}

struct Source {
  Column table;
  std::shared_ptr<const Chunk> chunk;
};

Source draw_chunk(Draw& draw, const std::vector<Column>& types, const std::shared_ptr<const Schema>& schema) {
  const std::int64_t rows = draw.number(0, 60);
  const std::int64_t before = draw.chance(40) ? draw.number(1, 9) : 0;
  std::vector<Column> columns;
  for (const auto& type : types) columns.push_back(draw_rows(draw, type, before + rows));
  Source source{table_of(std::move(columns)), nullptr};
  source.table.offset = before;
  source.table.length = rows;
  ArrowArray c = export_array(source.table);
  auto taken = Chunk::take(trireme::data::OwnedArray(c), schema);
  REQUIRE_MESSAGE(taken.ok(), taken.error().message());
  source.chunk = *taken;
  return source;
}

std::vector<Run> draw_runs(Draw& draw, const std::vector<Source>& sources) {
  std::vector<Run> runs;
  const bool single = draw.chance(40);
  for (std::int64_t i = draw.number(0, 40); i > 0; --i) {
    const auto chunk = static_cast<std::uint32_t>(draw.number(0, static_cast<std::int64_t>(sources.size()) - 1));
    const std::int64_t rows = sources[chunk].table.length;
    if (rows == 0) continue;
    const std::int64_t row = draw.number(0, rows - 1);
    runs.push_back({chunk, row, single ? 1 : draw.number(0, rows - row)});
  }
  return runs;
}

// Bitmaps exist only if there are nulls, and null counts are correct, at every level.
void check_nulls(const ArrowSchema& schema, const ArrowArray& array) {
  if (std::string_view(schema.format) == "n") {
    CHECK(array.null_count == array.length);
    return;
  }
  CHECK(array.offset == 0);
  CHECK(array.null_count == count_nulls(array));
  CHECK((array.null_count > 0) == (array.buffers[0] != nullptr));
  for (std::int64_t i = 0; i < array.n_children; ++i) check_nulls(*schema.children[i], *array.children[i]);
}

// The naive implementation.
void check_batch(const Batch& batch, const std::vector<Source>& sources, const std::vector<Run>& runs) {
  ArrowSchema from = export_schema(sources[0].table);
  std::vector<ArrowArray> arrays;
  for (const auto& source : sources) arrays.push_back(export_array(source.table));
  auto exported = batch.exported();
  ArrowArray array = exported.array.give();
  ArrowSchema schema = exported.schema.give();
  check_nulls(schema, array);
  std::int64_t at = 0;
  bool same = true;
  for (const Run& run : runs) {
    for (std::int64_t row = run.row; row < run.row + run.count; ++row, ++at) {
      REQUIRE(at < array.length);
      const std::string expected = cell(from, arrays[run.chunk], row);
      const std::string got = cell(schema, array, at);
      if (expected != got && same) CHECK(expected == got);
      same = same && expected == got;
    }
  }
  CHECK(at == array.length);
  CHECK(batch.rows() == array.length);
  for (auto& each : arrays) each.release(&each);
  from.release(&from);
  // A batch is also a valid source.
  auto again = Schema::take(trireme::data::OwnedSchema(schema));
  REQUIRE(again.ok());
  auto chunk = Chunk::take(trireme::data::OwnedArray(array), *again);
  REQUIRE_MESSAGE(chunk.ok(), chunk.error().message());
}

}  // namespace

TEST_CASE("batches equal those of a reader that works row by row") {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    Draw draw(seed);
    std::vector<Column> types;
    for (std::int64_t i = draw.number(1, 3); i > 0; --i) types.push_back(draw_type(draw, 3));
    ArrowSchema c = export_schema(table_of(types));
    auto schema = Schema::take(trireme::data::OwnedSchema(c));
    REQUIRE_MESSAGE(schema.ok(), schema.error().message());
    std::vector<Source> sources;
    std::vector<std::shared_ptr<const Chunk>> chunks;
    for (std::int64_t i = draw.number(1, 4); i > 0; --i) {
      sources.push_back(draw_chunk(draw, types, *schema));
      chunks.push_back(sources.back().chunk);
    }
    for (int i = 0; i < 3; ++i) {
      const auto runs = draw_runs(draw, sources);
      auto batch = Batch::gather(chunks, runs);
      REQUIRE_MESSAGE(batch.ok(), batch.error().message());
      check_batch(*batch, sources, runs);
    }
  }
}

}  // namespace gather_test
