#include "trireme/tensor.h"

#include <doctest/doctest.h>

#include <limits>

#include "trireme/value.h"

namespace tensor_test {

using namespace trireme;

TEST_CASE("a tensor has zeroed memory, which copies of the handle share") {
  Tensor tensor(DType::kF32, {2, 3});
  Tensor same = tensor;
  CHECK(tensor.num_elements() == 6);
  CHECK(tensor.num_bytes() == 24);
  CHECK(tensor.values<const float>()[5] == 0);
  same.values<float>()[5] = 1.5F;
  CHECK(tensor.values<float>()[5] == 1.5F);
  CHECK(tensor.describe() == "F32[2, 3]");
}

TEST_CASE("values of every C++ type") {
  CHECK(Tensor::of<bool>({true, false, true}).values<bool>()[2]);
  CHECK(Tensor::of<std::uint8_t>({255}).dtype() == DType::kU8);
  CHECK(Tensor::of<std::int8_t>({-1}).dtype() == DType::kI8);
  CHECK(Tensor::of<std::uint16_t>({65535}).dtype() == DType::kU16);
  CHECK(Tensor::of<std::int16_t>({-2}).dtype() == DType::kI16);
  CHECK(Tensor::of<std::uint32_t>({1}).dtype() == DType::kU32);
  CHECK(Tensor::of<std::int32_t>({1}).dtype() == DType::kI32);
  CHECK(Tensor::of<std::uint64_t>({std::numeric_limits<std::uint64_t>::max()}).dtype() == DType::kU64);
  CHECK(Tensor::of<std::int64_t>({1, 2}, {2, 1}).shape() == std::vector<std::int64_t>{2, 1});
  CHECK(Tensor::of<double>({}).num_bytes() == 0);
  const Tensor scalar = Tensor::scalar(2.5);
  CHECK(scalar.shape().empty());
  CHECK(scalar.values<double>()[0] == 2.5);
}

TEST_CASE("a view refers to external memory and keeps its owner alive") {
  auto owner = std::make_shared<std::vector<std::int32_t>>(std::vector<std::int32_t>{1, 2, 3, 4});
  const std::weak_ptr<void> watched = owner;
  {
    Tensor view = Tensor::view(DType::kI32, {4}, owner->data(), owner);
    owner->at(1) = 20;
    CHECK(view == Tensor::of<std::int32_t>({1, 20, 3, 4}));
    owner.reset();
    CHECK_FALSE(watched.expired());
  }
  CHECK(watched.expired());
}

TEST_CASE("tensors compare by type, shape and bytes") {
  CHECK(Tensor::of<float>({1, 2}) == Tensor::of<float>({1, 2}));
  CHECK_FALSE(Tensor::of<float>({1, 2}) == Tensor::of<float>({1, 3}));
  CHECK_FALSE(Tensor::of<float>({1, 2}) == Tensor::of<float>({1, 2}, {2, 1}));
  CHECK_FALSE(Tensor::of<std::int32_t>({0}) == Tensor::of<std::uint32_t>({0}));
  CHECK(Tensor(DType::kBF16, {0, 7}) == Tensor(DType::kBF16, {0, 7}));
}

TEST_CASE("types are named as in safetensors") {
  for (int i = 0; i <= static_cast<int>(DType::kF8E5M2Fnuz); ++i) {
    const auto dtype = static_cast<DType>(i);
    CHECK(dtype_of(name_of(dtype)) == dtype);
    CHECK(size_of(dtype) > 0);
  }
  CHECK(std::string(name_of(DType::kBF16)) == "BF16");
  CHECK(std::string(name_of(DType::kF8E5M2Fnuz)) == "F8_E5M2FNUZ");
  CHECK_FALSE(find_dtype("F33"));
  CHECK_THROWS_WITH_AS(dtype_of("F33"), doctest::Contains("unknown tensor type 'F33'; known types: BOOL, U8"),
                       ValueError);
}

TEST_CASE("errors name the problem") {
  CHECK_THROWS_WITH_AS(Tensor(DType::kF32, {2, -1}), "invalid tensor shape: [2, -1]", ValueError);
  CHECK_THROWS_AS(Tensor(DType::kF64, {std::numeric_limits<std::int64_t>::max(), 2}), ValueError);
  CHECK_THROWS_AS(Tensor(DType::kF64, {std::numeric_limits<std::int64_t>::max() / 4}), ValueError);
  CHECK_THROWS_WITH_AS(Tensor::of<float>({1, 2, 3}, {2, 2}), "got 3 values for F32[2, 2]", ValueError);
  CHECK_THROWS_WITH_AS(Tensor(DType::kF32, {1}).values<double>(), "cannot read F32[1] as F64", ValueError);
  CHECK_THROWS_WITH_AS(Value(1).as_tensor(), "expected a tensor, got int: 1", ValueError);
}

}  // namespace tensor_test
