#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "preprocess/columns.h"
#include "preprocess/learner.h"
#include "preprocess/place_table.h"
#include "trireme/value.h"

namespace trireme::preprocess {

// Values that are looked up by content: 2 and 2.0 are equal, -0.0 and 0.0, and 1.5 and 1.50; a list is one value.
class Places {
 public:
  // The index of the value, or -1.
  std::int64_t find(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) const;
  std::int64_t find(std::string_view text) const;
  // Returns whether it is new.
  bool add(const ArrowSchema& type, const ArrowArray& array, std::int64_t index, std::int64_t place);
  bool add(const Value& value, std::int64_t place);
  bool add(std::string_view text, std::int64_t place);

 private:
  using ByText = PlaceTable<std::string, std::string_view>;

  ByText texts_;
  PlaceTable<std::int64_t, std::int64_t> wholes_;
  ByText others_;  // by an encoding of the value
};

// The error names dates and times that JSON cannot hold.
base::Result<Value> value_of(const ArrowSchema& type, const ArrowArray& array, std::int64_t index);

// Values and their counts, in order of first appearance.
struct Counted {
  std::vector<Value> values;
  std::vector<std::int64_t> counts;
};

struct CountOptions {
  bool inside_lists = true;  // count the elements of lists; if false, each list is one value
  bool skip_nulls = false;
};

// `finish` converts the counts, in the order of the columns, to statistics.
std::unique_ptr<Learner> learn_counts(const std::vector<std::string>& columns, std::string_view who,
                                      CountOptions options,
                                      std::function<base::Result<Dict>(const std::vector<Counted>&)> finish);

// The `most` frequent values, the first ones among equals; sorted, the smallest first.
std::vector<Value> numbered(const Counted& counted, std::optional<std::int64_t> most = std::nullopt);

// Categories in the order of their numbers.
class Categories {
 public:
  // The error names a duplicate.
  static base::Result<Categories> of(std::vector<Value> values);
  // {category: number}, as in the JSON.
  static base::Result<Categories> of_numbers(const Value& stats);
  Value numbers() const;

  const std::vector<Value>& values() const { return values_; }
  std::size_t size() const { return values_.size(); }
  // Whether a column of that type can have these categories; lists are always accepted.
  base::Result<void> expect_fit(const ArrowSchema& type, const Column& column, std::string_view who) const;
  // The number of each value, -1 for unknown ones.
  base::Result<std::vector<std::int64_t>> codes(const Column& column, std::string_view who) const;
  std::int64_t code(const Inside& inside, std::int64_t index) const;

 private:
  std::vector<Value> values_;
  Places places_;
};

}  // namespace trireme::preprocess
