#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/hex.h"

namespace trireme::base {
namespace {

// Ordered, so that metrics keep the order in which they were written.
using Json = nlohmann::ordered_json;

// A SAX handler that builds a Value without an intermediate JSON tree.
class ValueBuilder {
 public:
  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(Json::number_integer_t value) { return add(static_cast<std::int64_t>(value)); }
  bool number_unsigned(Json::number_unsigned_t value) {
    if (std::in_range<std::int64_t>(value)) return add(static_cast<std::int64_t>(value));
    return add(static_cast<double>(value));
  }
  bool number_float(Json::number_float_t value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t& value) { return add(Bytes{std::string(value.begin(), value.end())}); }
  bool start_object(std::size_t) { return open(Dict()); }
  bool start_array(std::size_t size) {
    List list;
    // The size is untrusted: a short message must not make us reserve gigabytes.
    if (size != static_cast<std::size_t>(-1)) list.reserve(std::min<std::size_t>(size, 64));
    return open(std::move(list));
  }
  bool key(std::string& name) {
    keys_.push_back(std::move(name));
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& problem) {
    if (failure_.empty()) failure_ = fmt::format("at byte {}: {}", position, problem.what());
    return false;
  }

  Result<Value> finish(bool parsed) {
    if (!parsed) return error("{}", failure_.empty() ? "malformed" : failure_);
    return std::move(root_);
  }

 private:
  bool add(Value value) {
    if (stack_.empty()) {
      root_ = std::move(value);
    } else if (auto* list = std::get_if<List>(&stack_.back().container.variant())) {
      list->push_back(std::move(value));
    } else {
      put(stack_.back(), std::move(keys_.back()), std::move(value));
      keys_.pop_back();
    }
    return true;
  }

  struct Level {
    Value container;
    std::unordered_map<std::string, std::size_t> places;  // indexes of a dict's keys, only for large dicts
  };

  // The last value of a key wins. A lookup in the dict itself would take O(n * n) time for n keys.
  static void put(Level& level, std::string key, Value value) {
    static constexpr std::size_t kFew = 32;
    auto& dict = std::get<Dict>(level.container.variant());
    if (dict.size() < kFew) {
      dict[key] = std::move(value);
      return;
    }
    if (level.places.empty()) {
      for (const auto& item : dict) level.places.emplace(item.first, level.places.size());
    }
    const auto [place, added] = level.places.try_emplace(key, dict.size());
    if (added) {
      dict.append(std::move(key), std::move(value));
    } else {
      dict.begin()[static_cast<std::ptrdiff_t>(place->second)].second = std::move(value);
    }
  }

  bool open(Value container) {
    if (stack_.size() >= kMaxDepth) {
      failure_ = fmt::format("nested deeper than {}", kMaxDepth);
      return false;
    }
    stack_.push_back({std::move(container), {}});
    return true;
  }

  bool close() {
    Value container = std::move(stack_.back().container);
    stack_.pop_back();
    return add(std::move(container));
  }

  Value root_;
  std::vector<Level> stack_;
  std::vector<std::string> keys_;
  std::string failure_;
};

void append_string(std::string& out, const std::string& text) {
  // Nearly all strings of an event log.
  const bool plain =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 0x7f && c != '"' && c != '\\'; });
  if (plain) {
    out.append(1, '"').append(text).append(1, '"');
    return;
  }
  out += Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

void append_number(std::string& out, double value) {
  if (std::isfinite(value)) {
    std::string text = fmt::format("{}", value);
    // Otherwise 1.0 would be read back as an int.
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    out += text;
  } else {
    out += fmt::format(R"({{"$float":"{}"}})", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
  }
}

struct JsonWriter {
  std::string& out;
  int indent;  // -1: one line

  void write(const Value& value, int depth) {
    std::visit([&](const auto& held) { write_held(held, depth); }, value.variant());
  }

  void write_held(std::nullptr_t, int) { out += "null"; }
  void write_held(bool value, int) { out += value ? "true" : "false"; }
  void write_held(std::int64_t value, int) { fmt::format_to(std::back_inserter(out), "{}", value); }
  void write_held(double value, int) { append_number(out, value); }
  void write_held(const std::string& value, int) { append_string(out, value); }
  void write_held(const Bytes& value, int) { out += fmt::format(R"({{"$bytes":"{}"}})", to_hex(value.data)); }
  // For display only. The bytes of tensors are stored in separate files, see checkpoint/state_file.h.
  void write_held(const Tensor& tensor, int depth) { write_held(Dict{{"$tensor", tensor.describe()}}, depth); }
  void write_held(const List& list, int depth) {
    out += '[';
    bool first = true;
    for (const auto& item : list) {
      separate(first, depth + 1);
      write(item, depth + 1);
    }
    finish(first, depth);
    out += ']';
  }
  void write_held(const Dict& dict, int depth) {
    out += '{';
    bool first = true;
    for (const auto& [key, item] : dict) {
      separate(first, depth + 1);
      append_string(out, key);
      out += indent < 0 ? ":" : ": ";
      write(item, depth + 1);
    }
    finish(first, depth);
    out += '}';
  }

  void separate(bool& first, int depth) {
    if (!first) out += ',';
    first = false;
    new_line(depth);
  }
  void finish(bool empty, int depth) {
    if (!empty) new_line(depth);
  }
  void new_line(int depth) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<std::size_t>(depth * indent), ' ');
  }
};

// Decodes {"$float": "nan"} and {"$bytes": "..."}.
Value revive(Value value) {
  if (auto* list = std::get_if<List>(&value.variant())) {
    for (auto& item : *list) item = revive(std::move(item));
  } else if (auto* dict = std::get_if<Dict>(&value.variant())) {
    if (dict->size() == 1) {
      const auto& [key, item] = *dict->begin();
      const auto* text = item.get_if<std::string>();
      if (text && key == "$float") {
        if (*text == "nan") return std::numeric_limits<double>::quiet_NaN();
        if (*text == "inf") return std::numeric_limits<double>::infinity();
        if (*text == "-inf") return -std::numeric_limits<double>::infinity();
      }
      if (text && key == "$bytes") {
        if (auto data = from_hex(*text)) return Bytes{*std::move(data)};
      }
    }
    for (auto& [key, item] : *dict) item = revive(std::move(item));
  }
  return value;
}

Json to_nlohmann(const Value& value) {
  struct Convert {
    Json operator()(std::nullptr_t) const { return nullptr; }
    Json operator()(bool held) const { return held; }
    Json operator()(std::int64_t held) const { return held; }
    Json operator()(double held) const { return held; }
    Json operator()(const std::string& held) const { return held; }
    Json operator()(const Bytes& held) const {
      return Json::binary(std::vector<std::uint8_t>(held.data.begin(), held.data.end()));
    }
    Json operator()(const List& held) const {
      Json list = Json::array();
      for (const auto& item : held) list.push_back(to_nlohmann(item));
      return list;
    }
    Json operator()(const Tensor& held) const {
      throw ValueError(fmt::format("cannot send a tensor ({}): put it into a checkpoint", held.describe()));
    }
    Json operator()(const Dict& held) const {
      Json::object_t object;  // its operator[] would search all earlier keys, and these are unique
      for (const auto& [key, item] : held) object.emplace_back(key, to_nlohmann(item));
      return object;
    }
  };
  return std::visit(Convert{}, value.variant());
}

}  // namespace

void append_json(std::string& out, const Value& value) { JsonWriter{out, -1}.write(value, 0); }
void append_json(std::string& out, const Dict& dict) { JsonWriter{out, -1}.write_held(dict, 0); }

std::string to_json(const Value& value) {
  std::string out;
  append_json(out, value);
  return out;
}

std::string to_pretty_json(const Value& value) {
  std::string out;
  JsonWriter{out, 2}.write(value, 0);
  return out;
}

Result<Value> parse_plain_json(std::string_view text) {
  ValueBuilder builder;
  bool parsed = Json::sax_parse(text.begin(), text.end(), &builder);
  TRIREME_ASSIGN(auto value, builder.finish(parsed), "not JSON");
  return value;
}

Result<Value> parse_json(std::string_view text) {
  TRIREME_ASSIGN(auto value, parse_plain_json(text));
  return revive(std::move(value));
}

Result<Dict> parse_json_dict(std::string_view text) {
  TRIREME_ASSIGN(auto value, parse_json(text));
  if (auto* dict = std::get_if<Dict>(&value.variant())) return std::move(*dict);
  return error("expected a JSON object, got {}", value.type_name());
}

std::string to_msgpack(const Value& value) {
  std::string out;
  Json::to_msgpack(to_nlohmann(value), out);
  return out;
}

Result<Value> parse_msgpack(std::string_view bytes) {
  ValueBuilder builder;
  bool parsed = Json::sax_parse(bytes.begin(), bytes.end(), &builder, Json::input_format_t::msgpack);
  return builder.finish(parsed);
}

}  // namespace trireme::base
