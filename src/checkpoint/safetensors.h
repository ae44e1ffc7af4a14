#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trireme/tensor.h"

// The safetensors format: 8 bytes with the length of a JSON header, the header, the bytes of the tensors without a gap.
// https://github.com/huggingface/safetensors

namespace trireme::checkpoint {

// The format's own limit, on which its other readers insist.
inline constexpr std::uint64_t kMaxHeaderSize = 100'000'000;

using TextMap = std::map<std::string, std::string>;

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// What a file is going to look like, before a byte of it is written.
struct Layout {
  struct Place {
    Tensor tensor;
    std::uint64_t offset;  // from the beginning of the file
  };
  std::string head;           // everything before the bytes of the tensors
  std::vector<Place> places;  // in the order of the file
  std::uint64_t size = 0;     // of the file
};

// Names must differ. The tensors are put into an order in which each is aligned as its elements want it, and those
// whose size is a multiple of 64 bytes to 64 bytes.
base::Result<Layout> lay_out(std::vector<NamedTensor> tensors, const TextMap& metadata);

struct TensorEntry {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin;  // from the beginning of the file
  std::uint64_t end;
};

struct Header {
  TextMap metadata;
  std::vector<TensorEntry> entries;  // by place
};

// Of a whole file: every tensor lies in it, has the size that its type and shape ask for, and overlaps no other.
base::Result<Header> parse_header(std::string_view file);

}  // namespace trireme::checkpoint
