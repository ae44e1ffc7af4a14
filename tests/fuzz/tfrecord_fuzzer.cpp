#include "data/schema.h"
#include "formats/crc32c.h"
#include "formats/tfrecord.h"
#include "fuzz/fuzzer.h"
#include "tfrecord_bytes.h"

namespace tfrecord_fuzzer {

using namespace trireme;
using namespace trireme::formats;

namespace {

// Reads all batches, with any split of the bytes; returns the number of rows, or -1.
std::int64_t rows_of(std::string_view file, std::size_t step, const std::vector<FeatureColumn>& columns) {
  std::vector<std::string> names;
  for (const auto& column : columns) names.push_back(column.name);
  TfRecordReader reader("file", columns, names, 0);
  std::int64_t rows = 0;
  for (bool ended = false;;) {
    auto batch = reader.next();
    if (!batch) {
      expect(batch.error().message().starts_with("file"), "an error names the file");
      return -1;
    }
    if (*batch) {
      expect((**batch)->length > 0, "no batch is empty");
      rows += (**batch)->length;
      continue;
    }
    if (ended) return rows;
    reader.add(file.substr(0, step));
    file.remove_prefix(std::min(step, file.size()));
    ended = file.empty();
    if (ended) reader.end();
  }
}

// Wrong checksums would keep mutations from reaching the examples.
void with_checksums(std::string_view example) {
  ExampleColumns columns({{"x", 'l', false}, {"y", 'f', true}, {"z", 'u', true}, {"b", 'z', false}}, {});
  FeatureTypes types;
  const bool typed = types.look(example).ok();
  if (columns.add(example).ok()) {
    const auto array = columns.take();
    expect(array->length == 1 && array->n_children == 4, "an example is a row");
  }
  if (!typed) return;
  const std::string file = test::framed({std::string(example), std::string(example)});
  const auto rows = rows_of(file, 7, types.columns());
  expect(rows == 2, "an example is readable with its own types");
}

}  // namespace

void fuzz(const std::uint8_t* data, std::size_t size) {
  const std::string_view input = as_text(data, size);
  const std::vector<FeatureColumn> columns = {{"x", 'l', false}, {"y", 'f', true}, {"z", 'z', true}};
  const auto whole = rows_of(input, size + 1, columns);
  expect(whole == rows_of(input, 5, columns), "the chunks do not matter");
  with_checksums(input);
}

std::vector<std::string> seeds() {
  const std::string example = test::example({{"x", test::ints({-1, 1 << 20})}, {"y", test::floats({1.5F, 2})}});
  return {example, test::example({{"z", test::texts({"a", "bc"})}, {"b", test::texts({""})}, {"x", ""}}),
          test::framed({example, ""}), test::framed({}),
          test::framed({test::example({{"x", test::ints({7})}}), test::example({})})};
}

TRIREME_FUZZER(tfrecord);

}  // namespace tfrecord_fuzzer
