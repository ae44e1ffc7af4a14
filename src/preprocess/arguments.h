#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "preprocess/state_json.h"
#include "trireme/value.h"

namespace trireme::preprocess {

// The arguments of a preprocessor, from a program or a file. Errors name the argument and its value. A default that is
// read becomes the argument's value: all() is complete when the preprocessor has been made.
class Arguments {
 public:
  // Rejects all other names.
  static base::Result<Arguments> of(const Dict& given, std::span<const std::string_view> names);

  // As in the JSON, in the order of the names.
  const Dict& all() const { return values_; }
  // Null if it is not set.
  const Value& get(std::string_view name) const { return values_.at(name); }
  void set(std::string_view name, Value value) { values_[name] = std::move(value); }
  // At least one name, without duplicates.
  base::Result<std::vector<std::string>> names(std::string_view name) const;
  base::Result<std::string> text(std::string_view name) const;
  base::Result<std::string> text(std::string_view name, std::string_view standard);
  // One of the given values.
  base::Result<std::string> choice(std::string_view name, std::initializer_list<std::string_view> choices);
  base::Result<bool> flag(std::string_view name, bool standard);
  base::Result<std::int64_t> whole(std::string_view name) const;
  base::Result<double> number(std::string_view name) const;
  // `wrong`: the error for an entry that is not a list by column.
  base::Result<ListsByColumn> lists(std::string_view name, const std::function<base::Error(const Value&)>& wrong);

 private:
  Dict values_;
};

// Input columns and output columns.
struct InOut {
  std::vector<std::string> columns;
  std::vector<std::string> output_columns;

  static base::Result<InOut> of(Arguments& arguments);
};

List list_of(const std::vector<std::string>& names);

}  // namespace trireme::preprocess
