#include "formats/tfrecord.h"

#include <doctest/doctest.h>

#include "formats/crc32c.h"
#include "tfrecord_bytes.h"

namespace tfrecord_test {

using namespace trireme;
using namespace trireme::formats;
using namespace trireme::test;

namespace {

struct Taken {
  std::vector<ArrowArray> arrays;
  std::string problem;

  Taken() = default;
  Taken(Taken&&) = default;
  ~Taken() {
    for (auto& array : arrays) {
      if (array.release) array.release(&array);
    }
  }
  std::int64_t rows() const {
    std::int64_t sum = 0;
    for (const auto& array : arrays) sum += array.length;
    return sum;
  }
};

Taken read(std::string_view file, const std::vector<FeatureColumn>& columns, std::size_t step = 1 << 20,
           std::int64_t skip = 0) {
  std::vector<std::string> names;
  for (const auto& column : columns) names.push_back(column.name);
  TfRecordReader reader("f", columns, names, skip);
  Taken taken;
  for (bool ended = false;;) {
    auto batch = reader.next();
    if (!batch) {
      taken.problem = batch.error().message();
      return taken;
    }
    if (*batch) {
      taken.arrays.push_back((*batch)->give());
      continue;
    }
    if (ended) return taken;
    reader.add(file.substr(0, step));
    file.remove_prefix(std::min(step, file.size()));
    ended = file.empty();
    if (ended) reader.end();
  }
}

template <typename T>
std::vector<T> values(const ArrowArray& array, int buffer, std::int64_t count) {
  const auto* from = static_cast<const T*>(array.buffers[buffer]);
  return {from, from + count};
}

}  // namespace

TEST_CASE("crc32c matches RFC 3720") {
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AA);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62A8AB43);
  CHECK(crc32c("123456789") == 0xE3069283);
  CHECK(crc32c("a") == 0xC1D04330);
  CHECK(crc32c("") == 0);
}

TEST_CASE("examples become columns, however their bytes are split") {
  std::vector<std::string> records;
  for (int i = 0; i < 3000; ++i) {
    records.push_back(example({{"id", ints({i - 3})},
                               {"name", texts({"n" + std::to_string(i)})},
                               {"x", floats({0.5F, static_cast<float>(i)})},
                               {"many", i % 2 ? ints({1LL << 40, -1}) : std::string()}}));
  }
  const std::string file = framed(records);
  const std::vector<FeatureColumn> columns = {
      {"id", 'l', false}, {"many", 'l', true}, {"name", 'z', false}, {"x", 'f', true}};
  for (const std::size_t step : {std::size_t{1} << 20, std::size_t{1000}, std::size_t{13}}) {
    const Taken taken = read(file, columns, step);
    REQUIRE(taken.problem == "");
    REQUIRE(taken.rows() == 3000);
    const ArrowArray& first = taken.arrays.front();
    CHECK(values<std::int64_t>(*first.children[0], 1, 3) == std::vector<std::int64_t>{-3, -2, -1});
    CHECK(first.children[1]->null_count == first.length / 2);
    CHECK(values<std::int32_t>(*first.children[1], 1, 4) == std::vector<std::int32_t>{0, 0, 2, 2});
    CHECK(values<std::int64_t>(*first.children[1]->children[0], 1, 2) == std::vector<std::int64_t>{1LL << 40, -1});
    CHECK(std::string_view(static_cast<const char*>(first.children[2]->buffers[2]), 4) == "n0n1");
    CHECK(values<float>(*first.children[3]->children[0], 1, 4) == std::vector<float>{0.5F, 0, 0.5F, 1});
  }
  const Taken rest = read(file, columns, 1 << 16, 2999);
  REQUIRE(rest.rows() == 1);
  CHECK(values<std::int64_t>(*rest.arrays[0].children[0], 1, 1) == std::vector<std::int64_t>{2996});
}

TEST_CASE("the first examples define the columns") {
  TfRecordTypes types("f");
  const std::string file = framed({example({{"b", ints({1})}, {"a", ""}, {"c", texts({"x"})}}),
                                   example({{"a", floats({1, 2})}, {"b", ints({2})}, {"d", ""}})});
  CHECK(types.add(file).value());
  const std::vector<FeatureColumn> expected = {
      {"a", 'f', true}, {"b", 'l', false}, {"c", 'z', false}, {"d", 'z', false}};
  CHECK(types.columns().value() == expected);
  CHECK(TfRecordTypes("f").columns().error().message().find("f has no records with features") == 0);
  CHECK(FeatureColumn::of("a", "list<string>").value() == FeatureColumn{"a", 'u', true});
  CHECK(FeatureColumn::of("a", "int32").error().message().find("column 'a' is int32") == 0);
}

TEST_CASE("errors name the file and the record") {
  const std::string good = framed({example({{"x", ints({1})}}), example({{"x", ints({2})}})});
  const std::vector<FeatureColumn> columns = {{"x", 'l', false}};
  std::string flipped = good;
  flipped[flipped.size() - 6] ^= 1;
  const auto problem = [&](const std::string& file) { return read(file, columns).problem; };
  CHECK(problem(good) == "");
  CHECK(problem(flipped).find("f, record 1: wrong checksum") == 0);
  CHECK(problem(good.substr(0, good.size() - 3)) == "f is truncated in record 1");
  CHECK(problem("some text that is no record").find("f, record 0: wrong checksum") == 0);
  CHECK(problem("short") == "f is truncated in record 0");
  // More than a column holds, however large a compressed file unpacks.
  const std::string length = little_endian(std::uint64_t{1} << 31);
  CHECK(problem(length + masked(length)) == "f, record 0: it has 2147483648 bytes, more than the limit of 2147483647");
  CHECK(problem(framed({"\xff\xff\xff"})).find("f, record 0: this is not a tf.train.Example") == 0);
  CHECK(problem(framed({example({{"x", ints({1, 2})}})})).find("f, record 0: feature 'x' has 2 values") == 0);
  CHECK(problem(framed({example({{"x", floats({1})}})})).find("f, record 0: feature 'x' is float, but int64") == 0);
  CHECK(problem(framed({example({{"y", ints({1})}})})).find("f, record 0: feature 'y' is not in the first") == 0);
  const Taken text = read(framed({example({{"x", texts({"\xff"})}})}), {{"x", 'u', false}});
  CHECK(text.problem.find("f, record 0: feature 'x' is not valid UTF-8") == 0);
}

}  // namespace tfrecord_test
