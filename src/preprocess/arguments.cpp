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

base::Result<Arguments> Arguments::of(const Dict& given, std::span<const std::string_view> names) {
  Arguments made;
  for (const auto name : names) made.values_[name] = nullptr;
  for (const auto& [name, value] : given) {
    if (!made.values_.contains(name))
      return base::error("no argument named '{}'; the arguments are {}", name,
                         base::join({names.begin(), names.end()}, ", "));
    made.set(name, value);
  }
  return made;
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

base::Result<std::string> Arguments::text(std::string_view name, std::string_view standard) {
  if (get(name).is_null()) set(name, standard);
  return text(name);
}

base::Result<std::string> Arguments::choice(std::string_view name, std::initializer_list<std::string_view> choices) {
  TRIREME_ASSIGN(auto chosen, text(name, *choices.begin()));
  if (std::find(choices.begin(), choices.end(), chosen) != choices.end()) return chosen;
  std::vector<std::string> quoted;
  for (const auto each : choices) quoted.push_back(fmt::format("'{}'", each));
  return wrong(name, chosen, "one of " + base::join(quoted, ", "));
}

base::Result<bool> Arguments::flag(std::string_view name, bool standard) {
  if (get(name).is_null()) set(name, standard);
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

base::Result<ListsByColumn> Arguments::lists(std::string_view name,
                                             const std::function<base::Error(const Value&)>& wrong) {
  ListsByColumn lists;
  if (get(name).is_null()) set(name, Dict());
  TRIREME_ASSIGN(const auto pairs, decoded_pairs(get(name)), "{}", name);
  for (const auto& [column, values] : pairs) {
    if (!column.get_if<std::string>() || !values.get_if<List>()) return wrong(column);
    TRIREME_ASSIGN(const auto list, decoded(values), "{}", name);
    lists[column.as_string()] = list.as_list();
  }
  set(name, encoded_lists(lists));
  return lists;
}

base::Result<InOut> InOut::of(Arguments& arguments) {
  InOut made;
  TRIREME_ASSIGN(made.columns, arguments.names("columns"));
  if (arguments.get("output_columns").is_null()) arguments.set("output_columns", list_of(made.columns));
  TRIREME_ASSIGN(made.output_columns, arguments.names("output_columns"));
  if (made.output_columns.size() != made.columns.size()) {
    return base::error("output_columns={}: {} for {}; pass one for each", python_text(list_of(made.output_columns)),
                       base::count_of(std::ssize(made.output_columns), "name"),
                       base::count_of(std::ssize(made.columns), "column"));
  }
  return made;
}

List list_of(const std::vector<std::string>& names) { return List(names.begin(), names.end()); }

}  // namespace trireme::preprocess
