#include "formats/npy.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>

namespace npy_test {

using namespace trireme;
using namespace trireme::formats;

namespace {

std::string file(std::string_view dict) {
  return std::string("\x93NUMPY\x01", 7) + '\0' + static_cast<char>(dict.size()) + '\0' + std::string(dict);
}

std::string problem(std::string_view dict) {
  const auto parsed = parse_npy(file(dict));
  return parsed ? "" : parsed.error().message();
}

}  // namespace

TEST_CASE("headers of .npy files") {
  const std::string bytes = file("{'descr': '>f8', 'fortran_order': True, 'shape': (2, 3), }      \n");
  const auto header = parse_npy(bytes + "rest").value().header;
  REQUIRE(header);
  CHECK(header->dtype == DType::kF64);
  CHECK(header->swapped);
  CHECK(header->fortran_order);
  CHECK(header->shape == std::vector<std::int64_t>{2, 3});
  CHECK(header->value_bytes() == 48);
  CHECK(header->begin == static_cast<std::int64_t>(bytes.size()));
  CHECK(parse_npy(bytes.substr(0, 4)).value().needed > 4);
  CHECK(parse_npy(bytes.substr(0, 20)).value().needed == header->begin);
  CHECK(parse_npy(file("{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }")).value().header->shape ==
        std::vector<std::int64_t>{5});
}

TEST_CASE("unsupported files are rejected with a reason") {
  CHECK(parse_npy("PK\x03\x04").error().message() == "it does not start with the .npy signature");
  CHECK(problem("{'descr': '<U5', 'fortran_order': False, 'shape': (5,), }").find("its values are <U5") == 0);
  CHECK(problem("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (5,)}").find("its rows are records") == 0);
  CHECK(problem("{'descr': '<f4', 'shape': (5,)}") == "its header is invalid");
  CHECK(problem("{'descr': '<f4', 'fortran_order': False, 'shape': (-5,)}") == "its header is invalid");
  CHECK(problem("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}") ==
        "it has a shape that is too large: [4294967296, 4294967296]");
  CHECK(problem("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999, 2)}")
            .starts_with("it has a shape that is too large"));
  CHECK(problem("{'descr': '|O', 'fortran_order': False, 'shape': (5,)}").find("it is an array of objects") == 0);
}

TEST_CASE("headers that are not a whole dict are rejected, as by NumPy") {
  const std::string begin = "{'descr': '<i4', 'fortran_order': False, 'shape': ";
  CHECK(problem(begin + "(5,), }  \n").empty());
  CHECK(problem(begin + "(5,)}").empty());
  for (const char* end : {"(6, 4),0}", "(6, 4), 0   ", "(6, 4),", "(6, 4)", "(6, 4)} 0", "(6, 4)}}", "(6)}"})
    CHECK_MESSAGE(problem(begin + end) == "its header is invalid", end);
}

TEST_CASE("types that only NumPy reads are described") {
  const auto described = [](std::string_view descr) {
    const auto dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': (5, 2), }}", descr);
    return parse_npy(file(dict), NpyValues::kAny);
  };
  for (const auto& [descr, bytes] : std::map<std::string, std::int64_t>{
           {"<U5", 20}, {"|S3", 3}, {"<c16", 16}, {"<M8[ns]", 8}, {"<f4", 4}, {"|b1", 1}, {"<U0", 0}, {"|V6", 6}}) {
    const auto header = described(descr).value().header;
    CHECK(header->descr == descr);
    CHECK(header->item_bytes == bytes);
    CHECK(header->value_bytes() == 10 * bytes);
  }
  for (const auto* invalid : {"", "<", "U", "<U-1", "<U5x", "<U99999999999"}) CHECK_FALSE(described(invalid));
  CHECK_FALSE(described("|O"));
}

TEST_CASE("values become row-major in native byte order, and are not copied if they are already") {
  const std::vector<std::uint16_t> stored = {0x0100, 0x0300, 0x0500, 0x0200, 0x0400, 0x0600};
  const std::string_view bytes(reinterpret_cast<const char*>(stored.data()), stored.size() * 2);
  NpyHeader header{.descr = ">u2", .item_bytes = 2, .dtype = DType::kU16, .shape = {2, 3}};
  CHECK(npy_tensor(header, bytes, {}).data() == stored.data());
  header.swapped = true;
  const auto values = npy_tensor(header, bytes, {});
  CHECK(values == Tensor::of(std::vector<std::uint16_t>{1, 3, 5, 2, 4, 6}, {2, 3}));
  header.fortran_order = true;
  CHECK(npy_tensor(header, bytes, {}) == Tensor::of(std::vector<std::uint16_t>{1, 5, 4, 3, 2, 6}, {2, 3}));
  header.shape = {6};
  CHECK(npy_tensor(header, bytes, {}).values<std::uint16_t>()[1] == 3);
  header.shape = {0, 3};
  CHECK(npy_tensor(header, {}, {}).num_elements() == 0);
}

}  // namespace npy_test
