#include "formats/npy.h"
#include "fuzz/fuzzer.h"

namespace npy_fuzzer {

using namespace trireme;
using namespace trireme::formats;

void fuzz(const std::uint8_t* data, std::size_t size) {
  const auto any = parse_npy(as_text(data, size), NpyValues::kAny);
  expect(!any || !any->header || any->header->value_bytes() >= 0, "the size of all values of any type is known");
  const auto prefix = parse_npy(as_text(data, size));
  if (!prefix) {
    expect(!prefix.error().message().empty(), "an error has a message");
    return;
  }
  if (!prefix->header) {
    expect(prefix->needed > static_cast<std::int64_t>(size), "an incomplete input needs more bytes");
    return;
  }
  expect(prefix->header->begin <= static_cast<std::int64_t>(size), "values start after the header");
  expect(prefix->header->value_bytes() >= 0, "the size of all values is known");
  for (const auto each : prefix->header->shape) expect(each >= 0, "no dimension is negative");
}

std::vector<std::string> seeds() {
  const auto file = [](std::string_view dict, char version) {
    std::string text = std::string("\x93NUMPY") + version + '\0';
    text += static_cast<char>(dict.size());
    text += '\0';
    if (version > 1) text += std::string(2, '\0');
    return text.append(dict);
  };
  return {file("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }\n", 1),
          file("{'descr': '|b1', 'fortran_order': True, 'shape': (7,), }\n", 2),
          file("{'descr': '>i8', 'fortran_order': False, 'shape': (), }\n", 3),
          file("{\"shape\": (3L,), \"fortran_order\": False, \"descr\": [('a', '<i4')]}", 1)};
}

TRIREME_FUZZER(npy);

}  // namespace npy_fuzzer
