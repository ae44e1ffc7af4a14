#include "sample_values.h"

#include <arrow/util/utf8.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

#include "formats/images/image.h"
#include "formats/npy.h"

namespace trireme::dataset {
namespace {

using ::arrow::Status;

bool is_one_of(std::string_view kind, std::initializer_list<std::string_view> kinds) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

::arrow::Result<Value> text_of(std::string content) {
  static const bool ready = (::arrow::util::InitializeUTF8(), true);
  if (!ready || !::arrow::util::ValidateUTF8(std::string_view(content)))
    return Status::Invalid("it is not valid UTF-8");
  return Value(std::move(content));
}

::arrow::Result<Value> number_of(std::string_view content) {
  const auto space = [](char letter) { return std::isspace(static_cast<unsigned char>(letter)) != 0; };
  while (!content.empty() && space(content.front())) content.remove_prefix(1);
  while (!content.empty() && space(content.back())) content.remove_suffix(1);
  if (content.starts_with('+')) content.remove_prefix(1);
  std::int64_t number = 0;
  const auto [end, failed] = std::from_chars(content.data(), content.data() + content.size(), number);
  if (failed != std::errc() || end != content.data() + content.size()) {
    return Status::Invalid("'", content.substr(0, 40), "' is not an integer");
  }
  return Value(number);
}

// The conversion is recursive: a file of brackets must not overflow the stack.
constexpr int kMostNested = 200;

::arrow::Result<Value> value_of(const nlohmann::ordered_json& json, int depth = 0) {
  using Kind = nlohmann::ordered_json::value_t;
  if (depth > kMostNested) return Status::Invalid("its values are nested deeper than ", kMostNested);
  switch (json.type()) {
    case Kind::boolean: return Value(json.get<bool>());
    case Kind::number_integer: return Value(json.get<std::int64_t>());
    case Kind::number_unsigned:
      if (json.get<std::uint64_t>() >> 63 != 0)
        return Status::Invalid(json.dump(), " is too large for a 64-bit integer");
      return Value(json.get<std::int64_t>());
    case Kind::number_float: return Value(json.get<double>());
    case Kind::string: return Value(json.get<std::string>());
    case Kind::array: {
      List list;
      for (const auto& each : json) {
        ARROW_ASSIGN_OR_RAISE(list.emplace_back(), value_of(each, depth + 1));
      }
      return Value(std::move(list));
    }
    case Kind::object: {
      Dict dict;
      for (const auto& [key, each] : json.items()) {
        ARROW_ASSIGN_OR_RAISE(dict.append(key, {}), value_of(each, depth + 1));
      }
      return Value(std::move(dict));
    }
    default: return Value();
  }
}

::arrow::Result<Value> json_of(std::string_view content) {
  const auto json = nlohmann::ordered_json::parse(content, nullptr, false);
  if (json.is_discarded()) return Status::Invalid("it is not valid JSON");
  return value_of(json);
}

::arrow::Result<Value> array_of(std::string given) {
  const auto owner = std::make_shared<std::string>(std::move(given));
  const std::string_view content = *owner;
  const auto prefix = formats::parse_npy(content);
  if (!prefix) return Status::Invalid(prefix.error().message());
  if (!prefix->header) return Status::Invalid("its header is truncated");
  const auto& header = *prefix->header;
  const std::int64_t bytes = header.value_bytes();
  if (static_cast<std::int64_t>(content.size()) - header.begin < bytes) return Status::Invalid("it is truncated");
  const auto values = content.substr(static_cast<std::size_t>(header.begin), static_cast<std::size_t>(bytes));
  return Value(formats::npy_tensor(header, values, owner));
}

}  // namespace

::arrow::Result<Value> sample_value(const std::string& suffix, std::string content, bool decode,
                                    std::int64_t max_pixels) {
  if (!decode) return Value(Bytes{std::move(content)});
  std::string kind = suffix.substr(suffix.rfind('.') + 1);
  for (auto& letter : kind) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  if (is_one_of(kind, {"txt", "text", "transcript"})) return text_of(std::move(content));
  if (is_one_of(kind, {"cls", "cls2", "index", "count"})) return number_of(content);
  if (is_one_of(kind, {"json", "jsn"})) return json_of(content);
  if (kind == "npy") return array_of(std::move(content));
  if (is_one_of(kind, {"jpg", "jpeg", "png", "ppm", "pgm", "pbm", "bmp", "gif", "tif", "tiff", "webp"})) {
    auto image = formats::decode_image(content, {.max_pixels = max_pixels});
    if (!image) return Status::Invalid("it is not a readable image: ", image.error().message());
    return Value(formats::tensor_of(*std::move(image)));
  }
  return Value(Bytes{std::move(content)});
}

}  // namespace trireme::dataset
