#include "checkpoint/boxes.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace trireme::checkpoint {
namespace {

// A damaged file may have any numbers.
std::int64_t end_of(const Box& box, std::size_t dim) {
  std::int64_t end = 0;
  const bool overflow = __builtin_add_overflow(box.offset[dim], box.shape[dim], &end);
  return overflow ? std::numeric_limits<std::int64_t>::max() : end;
}

// Adds the rest of the box without the part to `rest`: in each dimension, the boxes below and above the part.
void cut(Box box, const Box& part, std::vector<Box>& rest) {
  const auto common = overlap(box, part);
  if (!common) {
    rest.push_back(std::move(box));
    return;
  }
  for (std::size_t i = 0; i < box.shape.size(); ++i) {
    const std::int64_t first = common->offset[i], last = first + common->shape[i], end = end_of(box, i);
    if (box.offset[i] < first) {
      rest.push_back(box);
      rest.back().shape[i] = first - box.offset[i];
    }
    if (last < end) {
      rest.push_back(box);
      rest.back().offset[i] = last;
      rest.back().shape[i] = end - last;
    }
    box.offset[i] = first;
    box.shape[i] = last - first;
  }
}

}  // namespace

bool Box::comparable(const Box& other) const {
  return offset.size() == shape.size() && other.offset.size() == shape.size() && other.shape.size() == shape.size();
}

std::int64_t Box::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::optional<Box> overlap(const Box& a, const Box& b) {
  TRIREME_CHECK(a.comparable(b), "boxes of {} and {} dimensions", a.shape.size(), b.shape.size());
  Box common = a;
  for (std::size_t i = 0; i < common.shape.size(); ++i) {
    common.offset[i] = std::max(a.offset[i], b.offset[i]);
    common.shape[i] = std::min(end_of(a, i), end_of(b, i)) - common.offset[i];
    if (common.shape[i] <= 0) return std::nullopt;
  }
  return common;
}

std::vector<Box> uncovered(const Box& wanted, std::span<const Box> parts) {
  std::vector<Box> missing;
  if (std::find(wanted.shape.begin(), wanted.shape.end(), 0) == wanted.shape.end()) missing.push_back(wanted);
  for (const auto& part : parts) {
    if (missing.empty()) break;
    std::vector<Box> rest;
    for (auto& box : missing) cut(std::move(box), part, rest);
    missing = std::move(rest);
  }
  return missing;
}

}  // namespace trireme::checkpoint
