#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trireme/value.h"

namespace trireme::preprocess {

// Named arguments, from a program or a file; errors name the argument and its value.
class Arguments {
 public:
  explicit Arguments(const Dict& given) : given_(&given) {}

  // Rejects all other names.
  base::Result<void> expect(std::initializer_list<std::string_view> names) const;
  // Null if it is not set.
  const Value& get(std::string_view name) const;
  // At least one name, without duplicates.
  base::Result<std::vector<std::string>> names(std::string_view name) const;
  base::Result<std::string> text(std::string_view name) const;
  base::Result<std::string> text(std::string_view name, std::string_view standard) const;
  // One of the given values.
  base::Result<std::string> choice(std::string_view name, std::initializer_list<std::string_view> choices) const;
  base::Result<bool> flag(std::string_view name, bool standard) const;
  base::Result<std::int64_t> whole(std::string_view name) const;
  base::Result<double> number(std::string_view name) const;

 private:
  const Dict* given_;
};

// Input columns and output columns.
struct InOut {
  std::vector<std::string> columns;
  std::vector<std::string> output_columns;

  static base::Result<InOut> of(const Arguments& arguments);
};

List list_of(const std::vector<std::string>& names);
// An argument of a preprocessor; null if not set.
Value list_or_null(const std::vector<std::string>& names);

}  // namespace trireme::preprocess
