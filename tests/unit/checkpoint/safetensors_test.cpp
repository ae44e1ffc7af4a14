#include "checkpoint/safetensors.h"

#include <doctest/doctest.h>

#include <cstring>

#include "unit/sanitizers.h"

namespace safetensors_test {

using namespace trireme;
using namespace trireme::checkpoint;

namespace {

std::string file_of(std::string_view header, std::string_view data = "") {
  const std::uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file.append(header).append(data);
}

std::string image_of(const Layout& layout) {
  std::string file = layout.head;
  for (const auto& place : layout.places) {
    CHECK(file.size() == place.offset);
    file.append(static_cast<const char*>(place.tensor.data()), place.tensor.num_bytes());
  }
  CHECK(file.size() == layout.size);
  return file;
}

const TensorEntry& entry_of(const Header& header, const std::string& name) {
  for (const auto& entry : header.entries) {
    if (entry.name == name) return entry;
  }
  throw std::out_of_range(name);
}

std::string refusal(const std::string& file) {
  auto header = parse_header(file);
  CHECK_FALSE(header.ok());
  return header ? "" : header.error().message();
}

}  // namespace

TEST_CASE("a layout is read back with every tensor at its offset") {
  std::vector<NamedTensor> tensors = {{"odd", Tensor::of<std::uint8_t>({1, 2, 3})},
                                      {"f", Tensor::of<float>({1.5, 2.5}, {1, 2})},
                                      {"nothing", Tensor(DType::kF64, {0, 3})},
                                      {"sc\"al\xC3\xA4r", Tensor::scalar(2.5)},
                                      {"large", Tensor(DType::kBF16, {64})}};
  const auto layout = lay_out(tensors, {{"by", "us"}}).value();
  const std::string file = image_of(layout);
  const auto header = parse_header(file).value();
  CHECK(header.metadata == TextMap{{"by", "us"}});
  REQUIRE(header.entries.size() == tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const auto& entry = entry_of(header, name);
    CHECK(entry.dtype == tensor.dtype());
    CHECK(entry.shape == tensor.shape());
    CHECK(entry.end - entry.begin == tensor.num_bytes());
    CHECK(std::string_view(file).substr(entry.begin, tensor.num_bytes()) ==
          std::string_view(static_cast<const char*>(tensor.data()), tensor.num_bytes()));
    CHECK_MESSAGE(entry.begin % size_of(entry.dtype) == 0, name);
  }
  CHECK(entry_of(header, "large").begin % 64 == 0);
}

TEST_CASE("the data begins at a multiple of 64 for any names") {
  for (std::size_t length = 0; length < 70; ++length) {
    const auto layout = lay_out({{std::string(length, 'x'), Tensor(DType::kF64, {8})}}, {}).value();
    CHECK(layout.head.size() % 64 == 0);
    CHECK(layout.places.at(0).offset == layout.head.size());
  }
}

TEST_CASE("every type stays aligned next to every other") {
  std::vector<NamedTensor> tensors;
  for (int i = 0; i <= static_cast<int>(DType::kF8E5M2Fnuz); ++i) {
    for (std::int64_t count : {1, 3, 64}) {
      tensors.push_back({std::to_string(i) + "/" + std::to_string(count), Tensor(static_cast<DType>(i), {count})});
    }
  }
  const auto header = parse_header(image_of(lay_out(tensors, {}).value())).value();
  CHECK(header.entries.size() == tensors.size());
  for (const auto& entry : header.entries) CHECK_MESSAGE(entry.begin % size_of(entry.dtype) == 0, entry.name);
}

TEST_CASE("no tensors at all") {
  CHECK(parse_header(image_of(lay_out({}, {}).value())).value().entries.empty());
  CHECK(parse_header(file_of("{}")).value().entries.empty());
}

TEST_CASE("files of other writers: any order, no padding") {
  const auto header =
      parse_header(file_of(R"({"b":{"shape":[2],"dtype":"F32","data_offsets":[1,9]},)"
                           R"("__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}  )",
                           "123456789"))
          .value();
  CHECK(header.metadata.at("format") == "pt");
  REQUIRE(header.entries.size() == 2);
  CHECK(header.entries[0].name == "a");
  CHECK(header.entries[1].end - header.entries[0].begin == 9);
}

// Writes 110 MB of JSON, which takes minutes under a sanitizer and tests nothing new there.
TEST_CASE("a header that is too long for the format is rejected before it is written" *
          doctest::skip(tests::kSanitized)) {
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < 11; ++i)
    tensors.push_back({std::string(10'000'000, static_cast<char>('a' + i)), Tensor(DType::kU8, {1})});
  auto layout = lay_out(tensors, {});
  REQUIRE_FALSE(layout.ok());
  CHECK(layout.error().message().find("of 11 tensors take") != std::string::npos);
}

TEST_CASE("damaged files are rejected, and the tensor is named") {
  struct Row {
    std::string file;
    std::string why;
  };
  const std::string f32 = R"("dtype":"F32","shape":[1])";
  const std::vector<Row> rows = {
      {"", "it has 0 bytes"},
      {"1234567", "it has 7 bytes"},
      {std::string(8, '\xff'), "a header of 18446744073709551615 bytes is over the limit"},
      {file_of("{}").substr(0, 9), "takes 2 bytes, but the file ends after 1: it is truncated"},
      {file_of(""), "not JSON"},
      {file_of("{"), "not JSON"},
      {file_of("[]"), "expected an object, got a list"},
      {file_of("null"), "expected an object, got null"},
      {file_of(R"({"a":1})"), "has a number as 'a'"},
      {file_of(R"({"a":{}})"), "'a' must have dtype, shape and data_offsets"},
      {file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0,4]}})", "123"), "'a' ends at byte 4 of the data"},
      {file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0,4]}})", "12345"), "the file has 1 byte after the last tensor"},
      {file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[4,0]}})", "1234"), "'a' begins at 4, after its end at 0"},
      {file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0,8]}})", "12345678"), "'a' takes 8 bytes, but F32[1] has 4"},
      {file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[1,5]}})", "12345"),
       "'a' begins at 1, but the previous tensor ends at 0"},
      {file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0,4]},"b":{)" + f32 + R"(,"data_offsets":[2,6]}})", "123456"),
       "'b' begins at 2, but the previous tensor ends at 4"},
      {file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0,4]},"a":{)" + f32 + R"(,"data_offsets":[4,8]}})", "12345678"),
       "duplicate name 'a'"},
      {file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0]}})"), "'a' has 1 data_offsets, not 2"},
      {file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0,-4]}})"), "'a' has the number -4 as 'data_offsets'"},
      {file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[0,4.0]}})"), "'a' has the number 4.0 as 'data_offsets'"},
      {file_of(R"({"a":{)" + f32 + R"(,"more":true,"data_offsets":[0,4]}})"), "'a' has a bool as 'more'"},
      {file_of(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", "1"), "'a' has the unknown type F4"},
      {file_of(R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", "1"),
       "the invalid extent"},
      {file_of(R"({"a":{"dtype":"U8","shape":[9223372036854775807,9],"data_offsets":[0,1]}})", "1"),
       "the invalid shape"},
      {file_of(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", "1"), "'a' has 'dtype' twice"},
      {file_of(R"({"__metadata__":{"a":1}})"), "'__metadata__' has a number as 'a'"},
      {file_of(R"({"a":{)" + f32 + R"(,"data_offsets":[[0,4]]}})"), "'a' has a list as 'data_offsets'"},
  };
  for (const auto& row : rows) {
    const std::string why = refusal(row.file);
    CHECK_MESSAGE(why.find(row.why) != std::string::npos, why << " | expected: " << row.why);
  }
}

}  // namespace safetensors_test
