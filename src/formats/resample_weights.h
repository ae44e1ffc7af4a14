#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace trireme::formats {

constexpr int kWeightBits = 32 - 8 - 2;

// For each output pixel of a line: the first input pixel, and the weights of the input pixels.
struct Weights {
  struct Span {
    std::int64_t first = 0;
    std::int64_t count = 0;
    const std::int32_t* parts = nullptr;
  };
  std::vector<Span> spans;
  std::vector<std::int32_t> parts;  // of all spans
};

// A triangle filter that matches Pillow's bit for bit.
inline Weights weights_of(std::int64_t from, std::int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double support = std::max(scale, 1.0);
  const double narrow = 1.0 / support;
  Weights weights;
  std::vector<double> triangle;
  for (std::int64_t place = 0; place < to; ++place) {
    const double center = (static_cast<double>(place) + 0.5) * scale;
    const auto first = std::max<std::int64_t>(0, static_cast<std::int64_t>(center - support + 0.5));
    const auto end = std::min(from, static_cast<std::int64_t>(center + support + 0.5));
    triangle.clear();
    double sum = 0;
    for (std::int64_t i = first; i < end; ++i) {
      const double distance = std::abs((static_cast<double>(i) - center + 0.5) * narrow);
      triangle.push_back(distance < 1 ? 1 - distance : 0);
      sum += triangle.back();
    }
    weights.spans.push_back({first, end - first, nullptr});
    for (const double part : triangle) {
      weights.parts.push_back(static_cast<std::int32_t>(0.5 + (sum != 0 ? part / sum : part) * (1 << kWeightBits)));
    }
  }
  const std::int32_t* part = weights.parts.data();
  for (auto& span : weights.spans) {
    span.parts = part;
    part += span.count;
  }
  return weights;
}

}  // namespace trireme::formats
