#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "preprocess/learner.h"

// Statistics of numbers. Nulls and NaN are excluded.

namespace trireme::preprocess {

base::Error nothing_to_learn_from(const std::string& column, std::string_view who);

struct Moments {
  std::int64_t count = 0;
  double mean = 0;
  double squares = 0;  // sum of squared deviations from the mean
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  // Chan's method to merge two sets: stays accurate if the mean is large and the deviation small.
  void add(const std::vector<double>& values);
  // Population, not sample.
  double deviation() const;
};

// Exact while the values fit into one level; beyond, half of a full level represents twice as many values each. The
// error in rank is below (number of levels) / (2 * size): 0.004 % for 10^9 values.
class Quantiles {
 public:
  explicit Quantiles(std::size_t size) : size_(size) {}

  void add(const std::vector<double>& values);
  std::vector<double> at(const std::vector<double>& fractions) const;
  std::size_t kept() const;

 private:
  void put(std::size_t depth, std::vector<double> values);

  std::size_t size_;
  std::vector<std::vector<double>> levels_;
  bool odd_ = false;
};

// `finish` converts the result, in the order of the columns, to statistics.
std::unique_ptr<Learner> learn_moments(const std::vector<std::string>& columns, std::string_view who,
                                       std::function<base::Result<Dict>(const std::vector<Moments>&)> finish);
// Keeps at least `size` values.
std::unique_ptr<Learner> learn_quantiles(const std::vector<std::string>& columns, std::string_view who,
                                         std::int64_t size,
                                         std::function<base::Result<Dict>(const std::vector<Quantiles>&)> finish);

}  // namespace trireme::preprocess
