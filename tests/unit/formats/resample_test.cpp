#include "formats/resample.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "data/random.h"

namespace resample_test {

using namespace trireme;
using formats::Pixels;

namespace {

struct Case {
  std::int64_t from_height, from_width, height, width, channels, step;
};

std::vector<std::uint8_t> noise(std::size_t bytes, std::uint64_t seed) {
  data::Random random(seed);
  std::vector<std::uint8_t> made(bytes);
  for (auto& each : made) each = static_cast<std::uint8_t>(random.below(256));
  return made;
}

// Resizes one line of values by Pillow's documented formula, in floating point.
std::vector<double> line(const std::vector<double>& from, std::int64_t to) {
  const double scale = static_cast<double>(from.size()) / static_cast<double>(to);
  const double wide = std::max(scale, 1.0);
  std::vector<double> made;
  for (std::int64_t place = 0; place < to; ++place) {
    const double center = (static_cast<double>(place) + 0.5) * scale;
    double sum = 0, weights = 0;
    for (std::size_t i = 0; i < from.size(); ++i) {
      const double weight = std::max(0.0, 1 - std::abs(static_cast<double>(i) + 0.5 - center) / wide);
      sum += weight * from[i];
      weights += weight;
    }
    made.push_back(std::floor(sum / weights + 0.5));  // the intermediate result is bytes, too
  }
  return made;
}

std::vector<std::uint8_t> expected(const std::vector<std::uint8_t>& from, const Case& each) {
  std::vector<std::uint8_t> made(static_cast<std::size_t>(each.height * each.width * each.channels));
  for (std::int64_t channel = 0; channel < each.channels; ++channel) {
    std::vector<std::vector<double>> rows;
    for (std::int64_t y = 0; y < each.from_height; ++y) {
      std::vector<double> row;
      for (std::int64_t x = 0; x < each.from_width; ++x) {
        row.push_back(from[static_cast<std::size_t>((y * each.from_width + x) * each.step + channel)]);
      }
      rows.push_back(line(row, each.width));
    }
    for (std::int64_t x = 0; x < each.width; ++x) {
      std::vector<double> column;
      for (const auto& row : rows) column.push_back(row[static_cast<std::size_t>(x)]);
      const auto values = line(column, each.height);
      for (std::int64_t y = 0; y < each.height; ++y) {
        made[static_cast<std::size_t>((y * each.width + x) * each.channels + channel)] =
            static_cast<std::uint8_t>(values[static_cast<std::size_t>(y)]);
      }
    }
  }
  return made;
}

}  // namespace

TEST_CASE("images of all shapes match the formula") {
  const std::vector<Case> cases = {
      {37, 53, 22, 31, 3, 3}, {37, 53, 22, 31, 3, 4}, {37, 53, 22, 31, 4, 4},  {37, 53, 22, 31, 1, 1},
      {5, 9, 31, 40, 3, 3},   {5, 9, 31, 40, 2, 2},   {4, 7, 4, 3, 3, 3},      {3, 7, 9, 7, 3, 4},
      {1, 1, 17, 19, 3, 3},   {100, 2, 1, 1, 3, 4},   {2, 300, 2, 20, 1, 1},   {6, 6, 6, 6, 3, 4},
      {5, 6, 5, 6, 3, 3},     {9, 16, 9, 5, 3, 4},    {64, 64, 128, 33, 3, 3},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& each = cases[i];
    CAPTURE(i);
    const auto from = noise(static_cast<std::size_t>(each.from_height * each.from_width * each.step), i);
    std::vector<std::uint8_t> made(static_cast<std::size_t>(each.height * each.width * each.channels));
    formats::resample({from.data(), each.from_height, each.from_width, each.channels, each.step}, made.data(),
                      each.height, each.width);
    const auto wanted = expected(from, each);
    // Fixed point may round a half the other way; after two passes the difference is at most one.
    int most = 0;
    for (std::size_t at = 0; at < made.size(); ++at) most = std::max(most, std::abs(made[at] - wanted[at]));
    CHECK(most <= 1);
  }
}

TEST_CASE("maximum brightness is preserved") {
  const std::vector<std::uint8_t> white(50 * 70 * 3, 255);
  std::vector<std::uint8_t> made(33 * 91 * 3);
  formats::resample({white.data(), 50, 70, 3, 3}, made.data(), 33, 91);
  CHECK(std::all_of(made.begin(), made.end(), [](std::uint8_t value) { return value == 255; }));
}

TEST_CASE("16-bit grayscale matches 8-bit grayscale") {
  const auto from = noise(37 * 53, 7);
  const std::vector<std::uint16_t> wide(from.begin(), from.end());
  for (const auto& [height, width] : {std::pair{22L, 31L}, std::pair{37L, 90L}, std::pair{50L, 53L}}) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(height * width));
    std::vector<std::uint16_t> made(bytes.size());
    formats::resample({from.data(), 37, 53, 1, 1}, bytes.data(), height, width);
    formats::resample_grey16(wide.data(), 37, 53, made.data(), height, width);
    CHECK(std::equal(made.begin(), made.end(), bytes.begin(), bytes.end()));
  }
}

}  // namespace resample_test
