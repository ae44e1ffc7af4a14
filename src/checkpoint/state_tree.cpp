#include "checkpoint/state_tree.h"

#include <algorithm>
#include <unordered_map>

#include "base/json.h"
#include "base/text.h"

namespace trireme::checkpoint {
namespace {

// A key of the format, which is not part of a tensor's name: {"$tuple": [...]}.
bool is_mark(std::string_view key) { return key.starts_with('$'); }

bool is_plain(char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

class Encoder {
 public:
  base::Result<void> encode(const Dict& state) {
    TRIREME_TRY(write(state, 0));
    json += '\n';
    return {};
  }

  std::string json;
  std::vector<NamedTensor> tensors;

 private:
  base::Result<void> write(const Value& value, int depth) {
    return std::visit([&](const auto& held) { return write(held, depth); }, value.variant());
  }

  base::Result<void> write(const Dict& dict, int depth) {
    TRIREME_TRY(check_depth(depth));
    if (dict.size() == 1 && is_mark(dict.begin()->first)) return write_marked(*dict.begin(), depth);
    json += '{';
    bool first = true;
    for (const auto& [key, item] : dict) {
      if (is_mark(key)) {
        return base::error("{} has the key '{}': keys that start with '$' are reserved; choose another key", place(),
                           key);
      }
      separate(first);
      TRIREME_TRY(write(key, depth));
      json += ':';
      TRIREME_TRY(write_below(key, item, depth));
    }
    json += '}';
    return {};
  }

  // Types that only other languages have (docs/state_format.md) are written unchanged.
  base::Result<void> write_marked(const Dict::Item& marked, int depth) {
    const auto& [mark, item] = marked;
    const bool ours = mark == "$tensor" || mark == "$float" || mark == "$bytes";
    if (ours) {
      return base::error("{} is a dict with the key '{}': keys that start with '$' are reserved; choose another key",
                         place(), mark);
    }
    json += '{';
    TRIREME_TRY(write(mark, depth));
    json += ':';
    const auto* pairs = item.get_if<List>();
    TRIREME_TRY(mark == "$dict" && pairs ? write_pairs(*pairs, depth + 1) : write(item, depth + 1));
    json += '}';
    return {};
  }

  // [[key, value], ...]: a dict with keys of any type. Tensors below are named after the key.
  base::Result<void> write_pairs(const List& pairs, int depth) {
    TRIREME_TRY(check_depth(depth + 1));
    json += '[';
    bool first = true;
    for (const auto& each : pairs) {
      separate(first);
      const auto* pair = each.get_if<List>();
      if (!pair || pair->size() != 2) return base::error("{} has a '$dict' that is not a list of pairs", place());
      json += '[';
      TRIREME_TRY(write((*pair)[0], depth + 2));
      json += ',';
      TRIREME_TRY(write_below(name_of_key((*pair)[0]), (*pair)[1], depth + 1));
      json += ']';
    }
    json += ']';
    return {};
  }

  base::Result<void> write(const List& list, int depth) {
    TRIREME_TRY(check_depth(depth));
    json += '[';
    bool first = true;
    std::size_t index = 0;
    for (const auto& item : list) {
      separate(first);
      TRIREME_TRY(write_below(fmt::format_int(index++).str(), item, depth));
    }
    json += ']';
    return {};
  }

  base::Result<void> write(const Tensor& tensor, int depth) {
    TRIREME_TRY(check_depth(depth));
    std::string name = unused_name();
    json += R"({"$tensor":)";
    TRIREME_TRY(write(name, depth));
    json += '}';
    tensors.push_back({std::move(name), tensor});
    return {};
  }

  base::Result<void> write(const std::string& text, int) {
    if (std::all_of(text.begin(), text.end(), is_plain)) {
      json.append(1, '"').append(text).append(1, '"');
      return {};
    }
    if (!base::is_utf8(text)) return base::error("{} has text that is not UTF-8: store it as Bytes", place());
    base::append_json(json, text);
    return {};
  }

  base::Result<void> write(const Bytes& bytes, int depth) {
    TRIREME_TRY(check_depth(depth));
    base::append_json(json, bytes);
    return {};
  }

  base::Result<void> write(double value, int depth) {
    TRIREME_TRY(check_depth(depth));  // NaN is an object
    base::append_json(json, Value(value));
    return {};
  }

  template <typename T>
  base::Result<void> write(const T& value, int) {
    base::append_json(json, Value(value));
    return {};
  }

  base::Result<void> write_below(std::string_view name, const Value& item, int depth) {
    const std::size_t length = path_.size();
    if (length > 0) path_ += '/';
    path_ += name;
    auto written = write(item, depth + 1);
    path_.resize(length);
    return written;
  }

  // The reader has this limit too.
  base::Result<void> check_depth(int depth) const {
    if (depth < base::kMaxDepth) return {};
    return base::error("{} is nested deeper than the limit of {} levels", place(), base::kMaxDepth);
  }

  static std::string name_of_key(const Value& key) {
    const auto* text = key.get_if<std::string>();
    return text ? *text : base::to_json(key);
  }

  // Names collide only if a key contains '/'.
  std::string unused_name() {
    const std::string wanted = path_.empty() || path_ == "__metadata__" ? path_ + "_" : path_;
    int& uses = uses_[wanted];
    if (++uses == 1) return wanted;
    while (true) {
      std::string name = fmt::format("{}~{}", wanted, uses++);
      if (uses_.try_emplace(name, 1).second) return name;
    }
  }

  std::string place() const { return path_.empty() ? "the state" : fmt::format("'{}' of the state", path_); }

  void separate(bool& first) {
    if (!first) json += ',';
    first = false;
  }

  std::string path_;
  std::unordered_map<std::string, int> uses_;
};

class Decoder {
 public:
  explicit Decoder(const FindTensor& find) : find_(find) {}

  base::Result<void> revive(Value& value) {
    if (auto* list = std::get_if<List>(&value.variant())) {
      for (auto& item : *list) TRIREME_TRY(revive(item));
    } else if (auto* dict = std::get_if<Dict>(&value.variant())) {
      if (dict->size() == 1 && dict->begin()->first == "$tensor") return revive_tensor(value);
      for (auto& item : *dict) TRIREME_TRY(revive(item.second));
    }
    return {};
  }

 private:
  base::Result<void> revive_tensor(Value& value) {
    const auto* name = value["$tensor"].get_if<std::string>();
    if (!name) return base::error("a '$tensor' without a name");
    TRIREME_ASSIGN(Tensor tensor, find_(*name));
    value = std::move(tensor);
    return {};
  }

  const FindTensor& find_;
};

}  // namespace

base::Result<StateLayout> lay_out(const Dict& state) {
  Encoder encoder;
  TRIREME_TRY(encoder.encode(state));
  TRIREME_ASSIGN(auto tensors, lay_out(std::move(encoder.tensors), {{kVersionKey, kVersion}}));
  return StateLayout{std::move(tensors), std::move(encoder.json)};
}

base::Result<Dict> decode_state(std::string_view json, const FindTensor& find) {
  TRIREME_ASSIGN(auto tree, base::parse_json_dict(json));
  Value root(std::move(tree));
  TRIREME_TRY(Decoder(find).revive(root));
  auto* state = std::get_if<Dict>(&root.variant());
  if (!state) return base::error("expected a dict, got a single tensor");
  return std::move(*state);
}

}  // namespace trireme::checkpoint
