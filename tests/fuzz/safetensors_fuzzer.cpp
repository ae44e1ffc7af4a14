#include <cstring>

#include "checkpoint/safetensors.h"
#include "fuzz/fuzzer.h"

namespace safetensors_fuzzer {

using namespace trireme;
using namespace trireme::checkpoint;

void fuzz(const std::uint8_t* data, std::size_t size) {
  const std::string_view file = as_text(data, size);
  auto header = parse_header(file);
  if (!header) {
    expect(!header.error().message().empty(), "an error has a message");
    return;
  }
  std::vector<NamedTensor> tensors;
  std::uint64_t at = header->entries.empty() ? size : header->entries.front().begin;
  for (const auto& entry : header->entries) {
    expect(entry.begin == at && entry.end >= entry.begin && entry.end <= size,
           "tensors are inside the file, without overlap");
    at = entry.end;
    Tensor tensor(entry.dtype, entry.shape);
    expect(tensor.num_bytes() == entry.end - entry.begin, "a tensor is as large as its shape");
    if (tensor.num_bytes() > 0) std::memcpy(tensor.data(), data + entry.begin, tensor.num_bytes());
    tensors.push_back({entry.name, std::move(tensor)});
  }
  expect(at == size, "nothing follows the last tensor");
  const auto layout = lay_out(tensors, header->metadata);
  expect(layout.ok(), "a parsed value can be written");
  std::string again = layout->head;
  for (const auto& place : layout->places) {
    again.append(static_cast<const char*>(place.tensor.data()), place.tensor.num_bytes());
  }
  const auto second = parse_header(again);
  expect(second.ok() && second->entries.size() == tensors.size(), "and read again");
  expect(second->metadata == header->metadata, "with its metadata");
}

std::vector<std::string> seeds() {
  auto file = [](std::string_view header, std::string_view bytes) {
    const std::uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length).append(header).append(bytes);
  };
  return {
      file("{}", ""),
      file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  )", "12345678"),
      file(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", "1"),
      file(
          R"({"a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},"b":{"dtype":"I64","shape":[0],"data_offsets":[4,4]},)"
          R"("c":{"dtype":"C64","shape":[1],"data_offsets":[4,12]}})",
          "123456789012"),
      file(
          R"({"x/y":{"shape":[3],"data_offsets":[0,3],"dtype":"BOOL"},"z":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[3,4]}})",
          "1234"),
  };
}

TRIREME_FUZZER(safetensors);

}  // namespace safetensors_fuzzer
