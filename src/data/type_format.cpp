#include "data/type_format.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>
#include <string_view>

#include "base/text.h"

namespace trireme::data {
namespace {

constexpr int kMaxNesting = 32;

struct FixedFormat {
  std::string_view format;
  std::string_view name;
  std::int64_t width;
  std::optional<DType> dtype;
};

constexpr auto kFixedFormats = std::to_array<FixedFormat>({
    {"c", "int8", 1, DType::kI8},
    {"C", "uint8", 1, DType::kU8},
    {"s", "int16", 2, DType::kI16},
    {"S", "uint16", 2, DType::kU16},
    {"i", "int32", 4, DType::kI32},
    {"I", "uint32", 4, DType::kU32},
    {"l", "int64", 8, DType::kI64},
    {"L", "uint64", 8, DType::kU64},
    {"e", "halffloat", 2, DType::kF16},
    {"f", "float", 4, DType::kF32},
    {"g", "double", 8, DType::kF64},
    {"tdD", "date32[day]", 4, DType::kI32},
    {"tdm", "date64[ms]", 8, DType::kI64},
    {"tts", "time32[s]", 4, DType::kI32},
    {"ttm", "time32[ms]", 4, DType::kI32},
    {"ttu", "time64[us]", 8, DType::kI64},
    {"ttn", "time64[ns]", 8, DType::kI64},
    {"tDs", "duration[s]", 8, DType::kI64},
    {"tDm", "duration[ms]", 8, DType::kI64},
    {"tDu", "duration[us]", 8, DType::kI64},
    {"tDn", "duration[ns]", 8, DType::kI64},
    {"tiM", "month_interval", 4, std::nullopt},
    {"tiD", "day_time_interval", 8, std::nullopt},
    {"tin", "month_day_nano_interval", 16, std::nullopt},
});

// These formats end with the time zone.
constexpr auto kTimestamps = std::to_array<FixedFormat>({
    {"tss:", "s", 8, DType::kI64},
    {"tsm:", "ms", 8, DType::kI64},
    {"tsu:", "us", 8, DType::kI64},
    {"tsn:", "ns", 8, DType::kI64},
});

struct TextFormat {
  std::string_view format;
  std::string_view name;
  std::int64_t width;
};

constexpr auto kTextFormats = std::to_array<TextFormat>(
    {{"u", "string", 4}, {"U", "large_string", 8}, {"z", "binary", 4}, {"Z", "large_binary", 8}});
constexpr auto kListFormats = std::to_array<TextFormat>({{"+l", "list", 4}, {"+L", "large_list", 8}, {"+m", "map", 4}});

struct UnreadFormat {
  std::string_view prefix;
  std::string_view name;
  std::string_view way_out;
};

constexpr auto kUnreadFormats = std::to_array<UnreadFormat>({
    {"vu", "string_view", "cast it to string"},
    {"vz", "binary_view", "cast it to binary"},
    {"+vl", "list_view", "cast it to list"},
    {"+vL", "large_list_view", "cast it to large_list"},
    {"+ud", "dense_union", "cast it to string, or to a struct"},
    {"+us", "sparse_union", "cast it to string, or to a struct"},
    {"+r", "run_end_encoded", "cast it to the type of its values"},
});

template <typename Formats>
const auto* find_format(const Formats& formats, std::string_view format) {
  for (const auto& known : formats) {
    if (known.format == format) return &known;
  }
  return static_cast<decltype(&formats[0])>(nullptr);
}

const FixedFormat* find_fixed(std::string_view format) {
  for (const auto& known : kTimestamps) {
    if (format.starts_with(known.format)) return &known;
  }
  return find_format(kFixedFormats, format);
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int32_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// "10,2" or "10,2,256".
std::optional<std::int64_t> decimal_width(std::string_view text) {
  const auto parts = base::split(text, ',');
  if (parts.size() == 2) return 16;
  if (parts.size() != 3) return std::nullopt;
  const auto bits = whole_number(parts[2]);
  if (bits != 32 && bits != 64 && bits != 128 && bits != 256) return std::nullopt;
  return *bits / 8;
}

base::Error unread(std::string_view format) {
  for (const auto& known : kUnreadFormats) {
    if (format.starts_with(known.prefix)) return base::error("{} is not supported; {}", known.name, known.way_out);
  }
  return base::error("unknown Arrow format '{}'; cast it to string", format);
}

base::Result<Type> parse_layout(std::string_view format) {
  Type type;
  type.format = format;
  if (format == "n") return type;
  const auto is = [&](Kind kind, std::int64_t width) {
    type.kind = kind;
    type.width = width;
    return type;
  };
  if (format == "b") return is(Kind::kBool, 0);
  if (format == "+s") return is(Kind::kStruct, 0);
  if (const auto* fixed = find_fixed(format)) return is(Kind::kFixed, fixed->width);
  if (const auto* text = find_format(kTextFormats, format)) return is(Kind::kText, text->width);
  if (const auto* list = find_format(kListFormats, format)) return is(Kind::kList, list->width);
  if (format.starts_with("w:")) {
    if (const auto width = whole_number(format.substr(2))) return is(Kind::kFixed, *width);
  }
  if (format.starts_with("d:")) {
    if (const auto width = decimal_width(format.substr(2))) return is(Kind::kFixed, *width);
  }
  if (format.starts_with("+w:")) {
    if (const auto length = whole_number(format.substr(3))) {
      type.length = *length;
      return is(Kind::kFixedList, 0);
    }
  }
  return unread(format);
}

base::Result<Type> parse(const ArrowSchema& schema, int depth);

base::Result<Type> parse_dictionary(const ArrowSchema& schema, int depth) {
  constexpr std::string_view kIndices = "cCsSiIlL";
  const std::string_view format = schema.format;
  if (format.size() != 1 || kIndices.find(format[0]) == std::string_view::npos) {
    return base::error("unknown Arrow format '{}' of dictionary indices; cast it to its values", format);
  }
  TRIREME_ASSIGN(Type type, parse(*schema.dictionary, depth + 1), "the values of the dictionary");
  if (type.dictionary) return base::error("a dictionary of dictionaries is not supported; cast it to its values");
  type.dictionary = true;
  type.index_format = format;
  return type;
}

base::Result<void> parse_children(const ArrowSchema& schema, int depth, Type& type) {
  const bool one = type.kind == Kind::kList || type.kind == Kind::kFixedList;
  const bool some = type.kind == Kind::kStruct;
  if (schema.n_children < 0 || (!some && schema.n_children != (one ? 1 : 0)) ||
      (schema.n_children > 0 && !schema.children)) {
    return base::error("invalid schema: Arrow format '{}' with {} children", type.format, schema.n_children);
  }
  for (std::int64_t i = 0; i < schema.n_children; ++i) {
    const ArrowSchema* child = schema.children[i];
    if (!child) return base::error("invalid schema: child {} is missing", i);
    auto parsed = parse(*child, depth + 1);
    if (!parsed && some) {
      return std::move(parsed).error().wrap(fmt::format("its field '{}'", child->name ? child->name : ""));
    }
    if (!parsed) return std::move(parsed).error().wrap("its items");
    type.children.push_back(std::move(*parsed));
  }
  return {};
}

base::Result<Type> parse(const ArrowSchema& schema, int depth) {
  if (depth > kMaxNesting) return base::error("types nested more than {} deep are not supported", kMaxNesting);
  if (!schema.format) return base::error("invalid schema: it has no format");
  if (schema.dictionary) return parse_dictionary(schema, depth);
  TRIREME_ASSIGN(Type type, parse_layout(schema.format));
  TRIREME_TRY(parse_children(schema, depth, type));
  return type;
}

std::string children_text(const std::vector<Type>& children) {
  std::vector<std::string> texts;
  for (const auto& child : children) texts.push_back(child.text());
  return base::join(texts, ", ");
}

std::string fixed_text(std::string_view format, std::int64_t width) {
  if (format.starts_with("w:")) return fmt::format("fixed_size_binary[{}]", width);
  if (format.starts_with("d:")) {
    const auto parts = base::split(format.substr(2), ',');
    return fmt::format("decimal{}({}, {})", width * 8, parts[0], parts[1]);
  }
  const FixedFormat* known = find_fixed(format);
  if (!format.starts_with("ts")) return std::string(known->name);
  const std::string_view zone = format.substr(known->format.size());
  return zone.empty() ? fmt::format("timestamp[{}]", known->name)
                      : fmt::format("timestamp[{}, tz={}]", known->name, zone);
}

std::string plain_text(const Type& type) {
  switch (type.kind) {
    case Kind::kNull: return "null";
    case Kind::kBool: return "bool";
    case Kind::kFixed: return fixed_text(type.format, type.width);
    case Kind::kText: return std::string(find_format(kTextFormats, type.format)->name);
    case Kind::kFixedList: return fmt::format("fixed_size_list<{}>[{}]", children_text(type.children), type.length);
    case Kind::kStruct: return fmt::format("struct<{}>", children_text(type.children));
    case Kind::kList: break;
  }
  // A map is a list of structs of key and value.
  const bool map = type.format == "+m" && type.children[0].kind == Kind::kStruct;
  return fmt::format("{}<{}>", find_format(kListFormats, type.format)->name,
                     children_text(map ? type.children[0].children : type.children));
}

}  // namespace

base::Result<Type> parse_type(const ArrowSchema& schema) { return parse(schema, 0); }

std::optional<DType> element_type(const Type& type) {
  if (type.kind == Kind::kBool) return DType::kBool;
  if (type.kind != Kind::kFixed) return std::nullopt;
  const FixedFormat* known = find_fixed(type.format);
  return known ? known->dtype : std::nullopt;
}

std::int64_t index_width(const std::string& index_format) { return find_fixed(index_format)->width; }

std::int64_t buffer_count(Kind kind) {
  switch (kind) {
    case Kind::kNull: return 0;
    case Kind::kFixedList:
    case Kind::kStruct: return 1;
    case Kind::kText: return 3;
    case Kind::kBool:
    case Kind::kFixed:
    case Kind::kList: break;
  }
  return 2;
}

std::string Type::text() const {
  return dictionary ? fmt::format("dictionary<{}>", plain_text(*this)) : plain_text(*this);
}

}  // namespace trireme::data
