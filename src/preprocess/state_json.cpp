#include "preprocess/state_json.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <limits>
#include <string>

#include "data/element_types.h"
#include "preprocess/big_int.h"
#include "preprocess/decimals.h"
#include "preprocess/python_text.h"
#include "preprocess/temporal.h"

namespace trireme::preprocess {
namespace {

std::string to_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // it writes a terminator
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

base::Result<std::string> from_base64(std::string_view text) {
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  const int padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  bytes.resize(static_cast<std::size_t>(std::max(size - padding, 0)));
  // OpenSSL also decodes spaces around the text, and '=' inside of it.
  if (size < 0 || to_base64(bytes) != text) return base::error("'{}' is not base64", text.substr(0, 60));
  return bytes;
}

base::Result<Value> decoded_float(const Value& content) {
  const auto* text = content.get_if<std::string>();
  if (text && *text == "nan") return Value(std::numeric_limits<double>::quiet_NaN());
  if (text && *text == "inf") return Value(std::numeric_limits<double>::infinity());
  if (text && *text == "-inf") return Value(-std::numeric_limits<double>::infinity());
  return base::error("{} is not a number", python_text(content));
}

base::Result<Value> decoded_list(const List& list) {
  List items;
  items.reserve(list.size());
  for (const auto& each : list) {
    TRIREME_ASSIGN(auto item, decoded(each));
    items.push_back(std::move(item));
  }
  return Value(std::move(items));
}

// The first key, as in Python; "" if it does not start with "$".
std::string_view kind_of(const Value& value) {
  const auto* dict = value.get_if<Dict>();
  if (!dict || dict->empty() || !dict->begin()->first.starts_with('$')) return "";
  return dict->begin()->first;
}

}  // namespace

Value encoded(const Value& value) {
  if (const auto* bytes = value.get_if<Bytes>()) return Dict{{"$bytes", to_base64(bytes->data)}};
  const auto* list = value.get_if<List>();
  if (!list) return value;
  return Dict{{"$tuple", encoded_list(*list)}};
}

List encoded_list(const List& values) {
  List list;
  for (const auto& each : values) list.push_back(encoded(each));
  return list;
}

Value encoded_lists(const ListsByColumn& lists) {
  Pairs pairs;
  for (const auto& [column, values] : lists) pairs.emplace_back(column, encoded_list(values));
  return encoded_pairs(std::move(pairs));
}

base::Result<Value> decoded(const Value& value) {
  if (const auto* list = value.get_if<List>()) return decoded_list(*list);
  const auto kind = kind_of(value);
  if (kind.empty() && value.get_if<Dict>()) return base::error("{} is not a column value", python_text(value));
  if (kind.empty()) return value;
  const Value& content = value.as_dict().begin()->second;
  if (kind == "$float") return decoded_float(content);
  if (parse_temporal(value) || decimal_of(value) || parse_big_int(value)) return value;
  if (kind == "$tuple" && content.get_if<List>()) return decoded_list(content.as_list());
  if (kind == "$bytes" && content.get_if<std::string>()) {
    TRIREME_ASSIGN(auto bytes, from_base64(content.as_string()));
    return Value(Bytes{std::move(bytes)});
  }
  return base::error("{} is not a value of the kind '{}' that this version supports", python_text(content),
                     kind.substr(1));
}

Value encoded_pairs(Pairs pairs) {
  const bool plain = std::all_of(pairs.begin(), pairs.end(), [](const auto& pair) {
    const auto* text = pair.first.template get_if<std::string>();
    return text && !text->starts_with('$');
  });
  Dict dict;
  List list;
  for (auto& [key, value] : pairs) {
    if (plain) dict.append(key.as_string(), std::move(value));
    else list.push_back(List{encoded(key), std::move(value)});
  }
  if (plain) return dict;
  return Dict{{"$pairs", std::move(list)}};
}

base::Result<Pairs> decoded_pairs(const Value& value) {
  const auto* dict = value.get_if<Dict>();
  if (!dict) return base::error("expected a dict, got {}", python_text(value));
  Pairs pairs;
  if (kind_of(value).empty()) {
    for (const auto& [key, each] : *dict) pairs.emplace_back(key, each);
    return pairs;
  }
  const Value& content = dict->begin()->second;
  if (kind_of(value) != "$pairs" || !content.get_if<List>())
    return base::error("expected a dict, got {}", python_text(value));
  for (const auto& each : content.as_list()) {
    const auto* pair = each.get_if<List>();
    if (!pair || pair->size() != 2) return base::error("{} is not a pair of key and value", python_text(each));
    TRIREME_ASSIGN(auto key, decoded(pair->front()));
    pairs.emplace_back(std::move(key), pair->back());
  }
  return pairs;
}

const Value* find_in(const Pairs& pairs, const std::string& key) {
  const auto found = std::find_if(pairs.begin(), pairs.end(), [&](auto& pair) { return pair.first == Value(key); });
  return found == pairs.end() ? nullptr : &found->second;
}

Value encoded_dtype(std::optional<DType> dtype) {
  if (!dtype) return {};
  const auto* known = data::find_element_type(*dtype);
  if (!known) return name_of(*dtype);
  return Dict{{"$dtype", fmt::format("{}{}", size_of(*dtype) == 1 ? '|' : '<', known->numpy)}};
}

base::Result<std::optional<DType>> decoded_dtype(const Value& value) {
  if (value.is_null()) return std::optional<DType>();
  const auto* text = kind_of(value) == "$dtype" ? value.as_dict().begin()->second.get_if<std::string>() : nullptr;
  const auto dtype = text && !text->empty() ? data::dtype_of_numpy(text->substr(1)) : std::nullopt;
  if (dtype && text->front() == (size_of(*dtype) == 1 ? '|' : '<')) return dtype;
  return base::error("dtype={}: expected a NumPy number type of at most 64 bits", python_text(value));
}

}  // namespace trireme::preprocess
