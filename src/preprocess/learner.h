#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "preprocess/table.h"
#include "trireme/value.h"

namespace trireme::preprocess {

// Statistics in the making: one pass over the batches, with no more memory than the result takes. Used by one thread at
// a time. Must not outlive its preprocessor.
class Learner {
 public:
  virtual ~Learner() = default;

  virtual base::Result<void> add(const Table& table) = 0;
  // The statistics, as in the JSON. Called once, after the last batch.
  virtual base::Result<Dict> done() = 0;
};

// Learns about each column on its own. A Part reads one of them: add(table), and then done(), which returns a
// Result<Found>.
template <typename Part, typename Found>
class EachColumnLearner final : public Learner {
 public:
  // Converts what was found, in the order of the columns, to statistics.
  using Finish = std::function<base::Result<Dict>(const std::vector<Found>&)>;
  EachColumnLearner(std::vector<Part> parts, Finish finish) : parts_(std::move(parts)), finish_(std::move(finish)) {}

  base::Result<void> add(const Table& table) override {
    for (auto& part : parts_) TRIREME_TRY(part.add(table));
    return {};
  }

  base::Result<Dict> done() override {
    std::vector<Found> all;
    for (auto& part : parts_) {
      TRIREME_ASSIGN(auto found, part.done());
      all.push_back(std::move(found));
    }
    return finish_(all);
  }

 private:
  std::vector<Part> parts_;
  Finish finish_;
};

}  // namespace trireme::preprocess
