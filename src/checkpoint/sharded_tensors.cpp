#include "checkpoint/sharded_tensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <unordered_map>

#include "base/json.h"
#include "checkpoint/boxes.h"
#include "trireme/tensor.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

using Sizes = std::vector<std::int64_t>;
using Values = std::vector<const Value*>;

// The value of a dict with this single key, which the format defines (docs/state_format.md).
const Value* marked(const Value& value, std::string_view mark) {
  const auto* dict = value.get_if<Dict>();
  return dict && dict->size() == 1 && dict->begin()->first == mark ? &dict->begin()->second : nullptr;
}

std::optional<Sizes> sizes_in(const Value& value) {
  const auto* list = value.get_if<List>();
  if (!list) return std::nullopt;
  Sizes sizes;
  for (const auto& item : *list) {
    const auto* number = item.get_if<std::int64_t>();
    if (!number || *number < 0) return std::nullopt;
    sizes.push_back(*number);
  }
  return sizes;
}

struct Part {
  Sizes offset;
  Tensor tensor;
};

struct ShardedTensor {
  Sizes shape;
  std::string dtype;
  std::vector<Part> parts;
  bool raw = false;  // a type that only torch has: bytes, with an extra last dimension
};

base::Result<ShardedTensor> read(const Value& content) {
  const auto* dict = content.get_if<Dict>();
  auto field = [&](const char* name) { return dict ? dict->find(name) : nullptr; };
  const Value *shape = field("shape"), *dtype = field("dtype"), *offsets = field("offsets"), *parts = field("parts");
  const auto damaged = [] { return base::error("its '$shard' is damaged"); };
  if (!shape || !sizes_in(*shape) || !dtype || !dtype->get_if<std::string>()) return damaged();
  const auto* places = offsets ? offsets->get_if<List>() : nullptr;
  const auto* tensors = parts ? parts->get_if<List>() : nullptr;
  if (!places || !tensors || places->size() != tensors->size()) return damaged();
  ShardedTensor made{*sizes_in(*shape), dtype->as_string(), {}, false};
  for (std::size_t i = 0; i < tensors->size(); ++i) {
    const Value* held = &(*tensors)[i];
    if (const Value* theirs = marked(*held, "$torch")) {
      const auto* inner = theirs->get_if<Dict>();
      held = inner ? inner->find("bytes") : nullptr;
      made.raw = true;
    }
    auto offset = sizes_in((*places)[i]);
    if (!offset || !held || !held->get_if<Tensor>()) return damaged();
    if (made.raw) offset->push_back(0);
    made.parts.push_back({std::move(*offset), held->as_tensor()});
  }
  return made;
}

bool fits(const Part& part, const Tensor& whole) {
  const Sizes &size = part.tensor.shape(), &limit = whole.shape();
  if (part.offset.size() != limit.size() || size.size() != limit.size()) return false;
  if (part.tensor.dtype() != whole.dtype()) return false;
  for (std::size_t i = 0; i < limit.size(); ++i) {
    if (part.offset[i] > limit[i] || size[i] > limit[i] - part.offset[i]) return false;
  }
  return true;
}

// Row by row: the elements of a row are contiguous in both.
void copy(const Part& part, const Tensor& whole) {
  const Sizes &size = part.tensor.shape(), &limit = whole.shape();
  const std::size_t dims = size.size();
  const std::size_t row = size_of(whole.dtype()) * static_cast<std::size_t>(dims > 0 ? size[dims - 1] : 1);
  const auto* from = static_cast<const std::byte*>(part.tensor.data());
  auto* to = static_cast<std::byte*>(whole.data());
  const std::size_t rows = row > 0 ? part.tensor.num_bytes() / row : 0;
  Sizes at(dims, 0);  // position of the row in the part
  for (std::size_t number = 0; number < rows; ++number) {
    std::int64_t element = 0;
    for (std::size_t i = 0; i < dims; ++i) element = element * limit[i] + part.offset[i] + at[i];
    std::memcpy(to + static_cast<std::size_t>(element) * size_of(whole.dtype()), from + number * row, row);
    for (std::size_t i = dims - (dims > 0 ? 1 : 0); i-- > 0;) {
      if (++at[i] < size[i]) break;
      at[i] = 0;
    }
  }
}

// Elements that no part has.
std::int64_t count_missing(const std::vector<Part>& parts, const Tensor& whole) {
  std::vector<Box> boxes;
  for (const auto& part : parts) boxes.push_back({part.offset, part.tensor.shape()});
  std::int64_t count = 0;
  for (const auto& box : uncovered({Sizes(whole.shape().size(), 0), whole.shape()}, boxes)) count += box.elements();
  return count;
}

base::Result<Value> assemble(const Values& all) {
  std::optional<ShardedTensor> shards;
  for (const Value* each : all) {
    const Value* content = marked(*each, "$shard");
    if (!content) return base::error("it is sharded on one rank and {} on another", each->type_name());
    TRIREME_ASSIGN(auto more, read(*content));
    if (!shards) {
      shards = std::move(more);
      continue;
    }
    if (more.shape != shards->shape || more.dtype != shards->dtype) {
      return base::error("it is {}[{}] on one rank and {}[{}] on another", shards->dtype,
                         fmt::join(shards->shape, ", "), more.dtype, fmt::join(more.shape, ", "));
    }
    shards->raw = shards->raw || more.raw;
    std::move(more.parts.begin(), more.parts.end(), std::back_inserter(shards->parts));
  }
  Sizes shape = shards->shape;
  if (shards->raw) shape.push_back(shards->parts.front().tensor.shape().back());
  if (shards->parts.empty() && std::find(shape.begin(), shape.end(), 0) == shape.end()) {
    return base::error("no rank stored it");
  }
  const auto known = find_dtype(shards->dtype);
  if (!known && !shards->raw) return *all.front();  // empty, with a type that only Python knows
  Tensor whole(shards->raw ? DType::kU8 : *known, shape);
  for (const auto& part : shards->parts) {
    if (!fits(part, whole)) return base::error("a shard of it, {}, does not fit", part.tensor.describe());
    copy(part, whole);
  }
  if (const std::int64_t missing = count_missing(shards->parts, whole); missing > 0) {
    return base::error("only {} of {} elements are stored: the shard of a rank is missing; load a complete checkpoint",
                       whole.num_elements() - missing, whole.num_elements());
  }
  if (shards->raw) return Value(Dict{{"$torch", Dict{{"bytes", whole}, {"dtype", shards->dtype}}}});
  return Value(whole);
}

class Joiner {
 public:
  base::Result<Value> join(const Values& all) {
    const Value& first = *all.front();
    if (marked(first, "$shard")) {
      TRIREME_ASSIGN(auto whole, assemble(all), "'{}' of the state", path_);
      return whole;
    }
    if (marked(first, "$dict")) return join_pairs(all);
    if (first.get_if<Dict>()) return join_dicts(all);
    if (first.get_if<List>()) return join_lists(all);
    return first;
  }

 private:
  base::Result<Value> join_dicts(const Values& all) {
    std::vector<std::string_view> order;
    std::unordered_map<std::string_view, Values> found;
    for (const Value* each : all) {
      const auto* dict = each->get_if<Dict>();
      for (std::size_t i = 0; dict && i < dict->size(); ++i) {
        const auto& [key, item] = *(dict->begin() + static_cast<std::ptrdiff_t>(i));
        auto& values = found[key];
        if (values.empty()) order.push_back(key);
        values.push_back(&item);
      }
    }
    Dict made;
    for (const auto key : order) {
      TRIREME_ASSIGN(auto value, join_below(key, found[key]));
      made.append(std::string(key), std::move(value));
    }
    return Value(std::move(made));
  }

  // {"$dict": [[key, value], ...]}: keys of any type, identified by their JSON.
  base::Result<Value> join_pairs(const Values& all) {
    std::vector<const Value*> keys;
    std::unordered_map<std::string, Values> found;
    for (const Value* each : all) {
      const Value* content = marked(*each, "$dict");
      const auto* pairs = content ? content->get_if<List>() : nullptr;
      for (std::size_t i = 0; pairs && i < pairs->size(); ++i) {
        const auto* pair = (*pairs)[i].get_if<List>();
        if (!pair || pair->size() != 2) return base::error("'{}' has a '$dict' that is not a list of pairs", path_);
        auto& values = found[base::to_json((*pair)[0])];
        if (values.empty()) keys.push_back(&(*pair)[0]);
        values.push_back(&(*pair)[1]);
      }
    }
    List made;
    for (const Value* key : keys) {
      const std::string name = base::to_json(*key);
      TRIREME_ASSIGN(auto value, join_below(name, found[name]));
      made.push_back(List{*key, std::move(value)});
    }
    return Value(Dict{{"$dict", std::move(made)}});
  }

  base::Result<Value> join_lists(const Values& all) {
    const auto& first = all.front()->as_list();
    List made;
    for (std::size_t i = 0; i < first.size(); ++i) {
      Values items;
      for (const Value* each : all) {
        const auto* list = each->get_if<List>();
        if (list && list->size() == first.size()) items.push_back(&(*list)[i]);
      }
      TRIREME_ASSIGN(auto value, join_below(fmt::format_int(i).str(), items));
      made.push_back(std::move(value));
    }
    return Value(std::move(made));
  }

  base::Result<Value> join_below(std::string_view name, const Values& all) {
    const std::size_t length = path_.size();
    if (!name.starts_with('$')) path_.append(length > 0 ? "/" : "").append(name);
    auto joined = join(all);
    path_.resize(length);
    return joined;
  }

  std::string path_;
};

}  // namespace

bool has_shards(const Value& state) {
  if (marked(state, "$shard")) return true;
  if (const auto* dict = state.get_if<Dict>()) {
    return std::any_of(dict->begin(), dict->end(), [](const auto& item) { return has_shards(item.second); });
  }
  const auto* list = state.get_if<List>();
  return list && std::any_of(list->begin(), list->end(), has_shards);
}

base::Result<Dict> join_shards(const std::vector<Dict>& states) {
  const std::vector<Value> values(states.begin(), states.end());
  Values all;
  for (const auto& value : values) all.push_back(&value);
  TRIREME_ASSIGN(auto joined, Joiner().join(all));
  return std::move(std::get<Dict>(joined.variant()));
}

base::Result<Dict> load_whole_state(const std::string& folder, const LoadOptions& options) {
  TRIREME_ASSIGN(auto own, load_state(folder, options));
  if (!has_shards(own)) return own;
  fs::path mine = fs::path(folder).lexically_normal();
  if (!mine.has_filename()) mine = mine.parent_path();
  const fs::path top = is_rank_folder(mine) ? mine.parent_path() : mine;
  TRIREME_ASSIGN(auto folders, rank_folders(top));
  folders.insert(folders.begin(), top);
  std::vector<Dict> states{std::move(own)};
  const LoadOptions others{.map = options.map, .verify = options.verify};
  for (const auto& each : folders) {
    if (each == mine) continue;
    TRIREME_ASSIGN(auto state, load_state(each.native(), others));
    states.push_back(std::move(state));
  }
  TRIREME_ASSIGN(auto whole, join_shards(states), "could not load the state in {}", folder);
  return whole;
}

}  // namespace trireme::checkpoint
