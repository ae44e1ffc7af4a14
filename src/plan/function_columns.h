#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "base/result.h"
#include "data/schema.h"
#include "plan/value_types.h"

namespace trireme::plan {

// The columns that a function returns: first those of the rows on which it was tried. Types that later rows need are
// added; whoever reads then starts again with the wider types, from where it was. Thread-safe.
class FunctionColumns {
 public:
  // Grows with every change of the types that readers see.
  std::int64_t revision() const { return revision_; }
  std::optional<Columns> known() const;
  // After the trial. `source`: the columns that the function receives. A column whose values are all null so far has
  // the type of the source's column of that name.
  void learn(Columns columns, const data::Schema& source);
  // As readers see them: see learn().
  Columns shown(const Columns& columns) const;
  // Adds what rows need that were read with the columns `before`. An error, for these readers, unless they see the
  // same.
  base::Result<void> widen(const Columns& before, const Columns& found);

 private:
  mutable std::mutex mutex_;
  std::optional<Columns> columns_;
  Columns source_;
  std::atomic<std::int64_t> revision_ = 0;
};

}  // namespace trireme::plan
