#include "npy_values.h"

#include <algorithm>
#include <cstring>

namespace trireme::dataset {
namespace {

using BufferPointer = std::shared_ptr<::arrow::Buffer>;

::arrow::Result<BufferPointer> transposed(const formats::NpyHeader& header, const ::arrow::Buffer& values,
                                          std::int64_t width) {
  ARROW_ASSIGN_OR_RAISE(BufferPointer out, ::arrow::AllocateBuffer(values.size()));
  const auto& shape = header.shape;
  std::vector<std::int64_t> strides(shape.size(), width);
  for (std::size_t i = 1; i < shape.size(); ++i) strides[i] = strides[i - 1] * shape[i - 1];
  std::vector<std::int64_t> index(shape.size(), 0);
  const std::uint8_t* from = values.data();
  std::uint8_t* to = out->mutable_data();
  for (std::uint8_t* end = to + out->size(); to < end; to += width) {
    std::memcpy(to, from, static_cast<std::size_t>(width));
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      from += strides[axis];
      if (++index[axis] < shape[axis]) break;
      from -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
  return out;
}

}  // namespace

::arrow::Result<BufferPointer> in_row_order(const formats::NpyHeader& header, BufferPointer values) {
  const auto width = static_cast<std::int64_t>(size_of(header.dtype));
  if (header.fortran_order && header.shape.size() > 1) {
    ARROW_ASSIGN_OR_RAISE(values, transposed(header, *values, width));
  }
  const bool aligned = reinterpret_cast<std::uintptr_t>(values->data()) % static_cast<std::uintptr_t>(width) == 0;
  if (!header.swapped && aligned) return values;
  ARROW_ASSIGN_OR_RAISE(BufferPointer out, ::arrow::AllocateBuffer(values->size()));
  if (values->size() > 0) std::memcpy(out->mutable_data(), values->data(), static_cast<std::size_t>(values->size()));
  if (header.swapped) {
    for (auto* at = out->mutable_data(); at < out->mutable_data() + out->size(); at += width)
      std::reverse(at, at + width);
  }
  return out;
}

}  // namespace trireme::dataset
