#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trireme/tensor.h"

// The safetensors format: 8 bytes with the length of a JSON header, the header, the bytes of the tensors without gaps.
// https://github.com/huggingface/safetensors

namespace trireme::checkpoint {

// The limit of the format, which other readers enforce.
inline constexpr std::uint64_t kMaxHeaderSize = 100'000'000;

using TextMap = std::map<std::string, std::string>;

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// The layout of a file, before any byte is written.
struct Layout {
  struct Place {
    Tensor tensor;
    std::uint64_t offset;  // from the beginning of the file
  };
  std::string head;           // everything before the bytes of the tensors
  std::vector<Place> places;  // in the order of the file
  std::uint64_t size = 0;     // of the file
};

// Names must be unique. Tensors are reordered so that each is aligned for its element type, and those whose size is a
// multiple of 64 bytes to 64 bytes.
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
  std::vector<TensorEntry> entries;  // by position in the file
};

// Parses a complete file. Checks that every tensor is inside the file, has the size of its type and shape, and overlaps
// no other.
base::Result<Header> parse_header(std::string_view file);

}  // namespace trireme::checkpoint
