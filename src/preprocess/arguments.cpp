#include "preprocess/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "preprocess/python_text.h"

namespace trireme::preprocess {
namespace {

base::Error wrong(std::string_view name, const Value& value, std::string_view expected) {
  return base::error("{}={}: expected {}", name, python_text(value), expected);
}

}  // namespace

base::Result<void> Arguments::expect(std::initializer_list<std::string_view> names) const {
  for (const auto& [name, value] : *given_) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      return base::error("no argument named '{}'; the arguments are {}", name,
                         base::join({names.begin(), names.end()}, ", "));
  }
  return {};
}

const Value& Arguments::get(std::string_view name) const {
  static const Value none;
  const Value* found = given_->find(name);
  return found ? *found : none;
}

base::Result<std::vector<std::string>> Arguments::names(std::string_view name) const {
  const Value& value = get(name);
  const auto* list = value.get_if<List>();
  if (!list || list->empty()) return wrong(name, value, "a list of column names");
  std::vector<std::string> found;
  for (const auto& each : *list) {
    const auto* text = each.get_if<std::string>();
    if (!text) return wrong(name, value, "a list of column names");
    found.push_back(*text);
  }
  if (std::set<std::string>(found.begin(), found.end()).size() < found.size())
    return base::error("{}={}: a name appears twice", name, python_text(value));
  return found;
}

base::Result<std::string> Arguments::text(std::string_view name) const {
  const auto* text = get(name).get_if<std::string>();
  if (!text) return wrong(name, get(name), "a string");
  return *text;
}

base::Result<std::string> Arguments::text(std::string_view name, std::string_view standard) const {
  if (get(name).is_null()) return std::string(standard);
  return text(name);
}

base::Result<std::string> Arguments::choice(std::string_view name,
                                            std::initializer_list<std::string_view> choices) const {
  TRIREME_ASSIGN(auto chosen, text(name, *choices.begin()));
  if (std::find(choices.begin(), choices.end(), chosen) != choices.end()) return chosen;
  std::vector<std::string> quoted;
  for (const auto each : choices) quoted.push_back(fmt::format("'{}'", each));
  return wrong(name, chosen, "one of " + base::join(quoted, ", "));
}

base::Result<bool> Arguments::flag(std::string_view name, bool standard) const {
  if (get(name).is_null()) return standard;
  const auto* flag = get(name).get_if<bool>();
  if (!flag) return wrong(name, get(name), "a bool");
  return *flag;
}

base::Result<std::int64_t> Arguments::whole(std::string_view name) const {
  const auto* whole = get(name).get_if<std::int64_t>();
  if (!whole) return wrong(name, get(name), "an integer");
  return *whole;
}

base::Result<double> Arguments::number(std::string_view name) const {
  if (!get(name).is_number()) return wrong(name, get(name), "a number");
  return get(name).as_double();
}

base::Result<InOut> InOut::of(const Arguments& arguments) {
  InOut made;
  TRIREME_ASSIGN(made.columns, arguments.names("columns"));
  made.output_columns = made.columns;
  if (!arguments.get("output_columns").is_null()) {
    TRIREME_ASSIGN(made.output_columns, arguments.names("output_columns"));
  }
  if (made.output_columns.size() != made.columns.size()) {
    return base::error("output_columns={}: {} for {}; pass one for each", python_text(list_of(made.output_columns)),
                       base::count_of(std::ssize(made.output_columns), "name"),
                       base::count_of(std::ssize(made.columns), "column"));
  }
  return made;
}

List list_of(const std::vector<std::string>& names) { return List(names.begin(), names.end()); }

Value list_or_null(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  return list_of(names);
}

}  // namespace trireme::preprocess
