#include "boosting/json_text.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace trireme::boosting {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Value& value) {
  if (value.is_null()) return nullptr;
  if (const auto* flag = value.get_if<bool>()) return *flag;
  if (const auto* number = value.get_if<std::int64_t>()) return *number;
  if (const auto* number = value.get_if<double>()) return *number;
  if (const auto* text = value.get_if<std::string>()) return *text;
  if (const auto* list = value.get_if<List>()) {
    Json made = Json::array();
    for (const Value& each : *list) made.push_back(json_of(each));
    return made;
  }
  Json made = Json::object();
  for (const auto& [name, each] : value.as_dict()) made[name] = json_of(each);
  return made;
}

Value value_of(const Json& json) {
  if (json.is_null()) return {};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    List made;
    for (const Json& each : json) made.push_back(value_of(each));
    return made;
  }
  Dict made;
  for (const auto& [name, each] : json.items()) made[name] = value_of(each);
  return made;
}

}  // namespace

std::string to_json(const Value& value) { return json_of(value).dump(); }

Value from_json(const std::string& text) {
  try {
    return value_of(Json::parse(text));
  } catch (const Json::exception& error) {
    throw std::runtime_error(std::string("invalid JSON: ") + error.what());
  }
}

}  // namespace trireme::boosting
