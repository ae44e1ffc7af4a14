#include "preprocess/python_text.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"

namespace trireme::preprocess {
namespace {

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

// "<f4" is float32.
std::string dtype_text(const Value& value) {
  const auto* text = value.get_if<std::string>();
  if (!text || text->size() != 3) return python_text(value);
  const int bits = ((*text)[2] - '0') * 8;
  switch ((*text)[1]) {
    case 'b': return "bool";
    case 'u': return fmt::format("uint{}", bits);
    case 'i': return fmt::format("int{}", bits);
    case 'f': return fmt::format("float{}", bits);
    default: return *text;
  }
}

}  // namespace

std::string python_text(const Value& value) {
  if (value.is_null()) return "None";
  if (const auto* flag = value.get_if<bool>()) return *flag ? "True" : "False";
  if (const auto* whole = value.get_if<std::int64_t>()) return std::to_string(*whole);
  if (const auto* number = value.get_if<double>()) return number_text(*number);
  if (const auto* text = value.get_if<std::string>()) return "'" + *text + "'";
  if (const auto* bytes = value.get_if<Bytes>()) return base::count_of(std::ssize(bytes->data), "byte");
  if (const auto* tensor = value.get_if<Tensor>()) return tensor->describe();
  std::vector<std::string> parts;
  if (const auto* list = value.get_if<List>()) {
    for (const auto& each : *list) parts.push_back(python_text(each));
    return "[" + base::join(parts, ", ") + "]";
  }
  const Dict& dict = value.as_dict();
  const std::string_view kind = dict.size() == 1 ? std::string_view(dict.begin()->first) : "";
  if (kind == "$tuple" && dict.begin()->second.get_if<List>()) {
    const std::string inside = python_text(dict.begin()->second);
    return "(" + inside.substr(1, inside.size() - 2) + ")";
  }
  if (kind == "$dtype") return "dtype('" + dtype_text(dict.begin()->second) + "')";
  // Dates, decimals and similar.
  if (kind.starts_with('$') && dict.begin()->second.get_if<std::string>()) return dict.begin()->second.as_string();
  for (const auto& [name, each] : dict) parts.push_back("'" + name + "': " + python_text(each));
  return "{" + base::join(parts, ", ") + "}";
}

}  // namespace trireme::preprocess
