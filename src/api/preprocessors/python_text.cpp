#include "api/preprocessors/python_text.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"

namespace trireme::api::preprocessing {
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
  if (!text || text->size() != 3) return shown(value);
  const int bits = ((*text)[2] - '0') * 8;
  switch ((*text)[1]) {
    case 'b': return "bool";
    case 'u': return fmt::format("uint{}", bits);
    case 'i': return fmt::format("int{}", bits);
    case 'f': return fmt::format("float{}", bits);
    default: return *text;
  }
}

struct Words {
  const char* null;
  const char* yes;
  const char* no;
  const char* dtype;
};
constexpr Words kPython{"None", "True", "False", "dtype('{}')"};
constexpr Words kNeutral{"null", "true", "false", "'{}'"};

std::string text_of(const Value& value, const Words& words) {
  if (value.is_null()) return words.null;
  if (const auto* flag = value.get_if<bool>()) return *flag ? words.yes : words.no;
  if (const auto* whole = value.get_if<std::int64_t>()) return std::to_string(*whole);
  if (const auto* number = value.get_if<double>()) return number_text(*number);
  if (const auto* text = value.get_if<std::string>()) return "'" + *text + "'";
  if (const auto* bytes = value.get_if<Bytes>()) return base::count_of(std::ssize(bytes->data), "byte");
  if (const auto* tensor = value.get_if<Tensor>()) return tensor->describe();
  std::vector<std::string> parts;
  if (const auto* list = value.get_if<List>()) {
    for (const auto& each : *list) parts.push_back(text_of(each, words));
    return "[" + base::join(parts, ", ") + "]";
  }
  const Dict& dict = value.as_dict();
  const std::string_view kind = dict.size() == 1 ? std::string_view(dict.begin()->first) : "";
  if (kind == "$tuple" && dict.begin()->second.get_if<List>()) {
    const std::string inside = text_of(dict.begin()->second, words);
    return "(" + inside.substr(1, inside.size() - 2) + ")";
  }
  if (kind == "$dtype") return fmt::format(fmt::runtime(words.dtype), dtype_text(dict.begin()->second));
  for (const auto& [name, each] : dict) parts.push_back("'" + name + "': " + text_of(each, words));
  return "{" + base::join(parts, ", ") + "}";
}

}  // namespace

std::string python_text(const Value& value) { return text_of(value, kPython); }
std::string shown(const Value& value) { return text_of(value, kNeutral); }

}  // namespace trireme::api::preprocessing
