#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "api/preprocessors/columns.h"
#include "base/result.h"
#include "trireme/data.h"
#include "trireme/value.h"

namespace trireme::api::preprocessing {

// Values that are looked up by content: 2 and 2.0 are equal, a list is one value.
class Places {
 public:
  // The index of the value at `index`, or -1.
  std::int64_t find(const ArrowSchema& type, const ArrowArray& array, std::int64_t index, std::string& key) const;
  std::int64_t find(std::string_view key) const;
  // Returns whether it is new.
  bool add(std::string_view key, std::int64_t place) { return places_.try_emplace(std::string(key), place).second; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> places_;
};

void append_key(std::string& key, const ArrowSchema& type, const ArrowArray& array, std::int64_t index);
void append_key(std::string& key, const Value& value);

// Values and their counts, in order of first appearance.
struct Counted {
  std::vector<Value> values;
  std::vector<std::int64_t> counts;
};

struct CountOptions {
  bool inside_lists = true;  // count the elements of lists; if false, each list is one value
  bool skip_nulls = false;
};

base::Result<std::vector<Counted>> value_counts(const Dataset& dataset, const std::vector<std::string>& columns,
                                                std::string_view who, CountOptions options);

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
  std::int64_t code(const Inside& inside, std::int64_t index, std::string& key) const;

 private:
  std::vector<Value> values_;
  Places places_;
};

}  // namespace trireme::api::preprocessing
