#include "engine/placement.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "engine/resources.h"

namespace trireme::engine {
namespace {

// The bundles assigned to a node, by their index in the request.
using Taken = std::vector<std::pair<std::size_t, Slot>>;

// One node with its remaining resources while a gang is placed.
class Room {
 public:
  explicit Room(const NodeInfo& node) : node_(node) {}

  std::optional<Slot> take(const Resources& need, const std::optional<std::string>& accelerator_type) {
    for (const auto& [name, amount] : need) {
      if (name != "GPU" && limits(name) && amount > amount_of(node_.available, name) + kAmountTolerance) return {};
    }
    auto devices = choose_devices(amount_of(need, "GPU"), accelerator_type);
    if (!devices) return {};
    Slot slot{.node_id = node_.id, .host = node_.host, .resources = need, .gpus = *std::move(devices)};
    for (const auto& [name, amount] : need) {
      if (name != "GPU" && limits(name)) subtract(node_.available, {{name, amount}});
    }
    for (const auto& [id, share] : gpu_shares(slot)) device(id).available -= share;
    return slot;
  }

  bool has_accelerator(const std::string& type) const {
    return std::any_of(node_.gpus.begin(), node_.gpus.end(),
                       [&](const Gpu& gpu) { return matches_accelerator(gpu, type); });
  }

 private:
  bool limits(const std::string& name) const { return name != "CPU" || node_.cpus_declared; }

  Gpu& device(const std::string& id) {
    const auto found = std::find_if(node_.gpus.begin(), node_.gpus.end(), [&](const Gpu& gpu) { return gpu.id == id; });
    TRIREME_CHECK(found != node_.gpus.end(), "GPU {} of node {}", id, node_.id);
    return *found;
  }

  // A fraction is placed on the fullest device that has room for it, so that other devices stay free.
  std::optional<std::vector<std::string>> choose_devices(double amount, const std::optional<std::string>& type) const {
    if (amount <= kAmountTolerance) return std::vector<std::string>();
    const bool whole = std::abs(amount - std::round(amount)) <= kAmountTolerance;
    if (amount > 1.0 && !whole) return {};
    std::vector<std::size_t> free;
    for (std::size_t i = 0; i < node_.gpus.size(); ++i) {
      const Gpu& gpu = node_.gpus[i];
      const double share = whole ? 1.0 : amount;
      if ((!type || matches_accelerator(gpu, *type)) && gpu.available + kAmountTolerance >= share) free.push_back(i);
    }
    std::stable_sort(free.begin(), free.end(), [&](std::size_t a, std::size_t b) {
      return node_.gpus[a].available + kAmountTolerance < node_.gpus[b].available;
    });
    const auto count = static_cast<std::size_t>(whole ? std::lround(amount) : 1);
    if (free.size() < count) return {};
    free.resize(count);
    std::sort(free.begin(), free.end());
    std::vector<std::string> devices;
    for (const std::size_t i : free) devices.push_back(node_.gpus[i].id);
    return devices;
  }

  NodeInfo node_;
};

class Layout {
 public:
  Layout(const GangRequest& request, std::vector<Room> rooms) : request_(request), rooms_(std::move(rooms)) {
    taken_.resize(rooms_.size());
    for (std::size_t i = 0; i < request.bundles.size(); ++i) order_.push_back(i);
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return larger(a, b); });
  }

  bool place_all() {
    switch (request_.strategy) {
      case Strategy::kPack: return pack(rooms_.size());
      case Strategy::kStrictPack: return pack(1);
      case Strategy::kSpread: return spread(request_.bundles.size());
      case Strategy::kStrictSpread: return spread(1);
    }
    return false;
  }

  // Node by node, in the order in which nodes were first used: rank 0 is on the first node.
  std::vector<Slot> slots() && {
    std::vector<Slot> slots;
    for (const std::size_t room : used_) {
      std::sort(taken_[room].begin(), taken_[room].end(),
                [](const auto& a, const auto& b) { return a.first < b.first; });
      for (auto& [bundle, slot] : taken_[room]) slots.push_back(std::move(slot));
    }
    return slots;
  }

 private:
  bool larger(std::size_t a, std::size_t b) const {
    const auto& left = request_.bundles[a];
    const auto& right = request_.bundles[b];
    const auto key = [](const Resources& r) { return std::pair(amount_of(r, "GPU"), amount_of(r, "CPU")); };
    return key(left) > key(right);
  }

  // Bundles with the same needs, by their indexes in the request. A node that refuses one of them refuses all, so the
  // time grows with the number of nodes and bundles, and not with their product.
  struct Kind {
    const Resources& need;
    std::vector<std::size_t> bundles = {};
    std::size_t placed = 0;

    std::size_t left() const { return bundles.size() - placed; }
  };

  // In their order; bundles that are not adjacent there stay apart.
  std::vector<Kind> kinds() const {
    std::vector<Kind> kinds;
    for (const std::size_t bundle : order_) {
      const Resources& need = request_.bundles[bundle];
      if (kinds.empty() || kinds.back().need != need) kinds.push_back({need});
      kinds.back().bundles.push_back(bundle);
    }
    return kinds;
  }

  // How many bundles an unused node takes: (index of the kind, number).
  struct Fill {
    std::vector<std::pair<std::size_t, std::size_t>> counts;
    std::size_t total = 0;
    bool known = false;

    // Other nodes have taken bundles since it was computed. It changes only if too few are left.
    bool holds(const std::vector<Kind>& kinds) const {
      return known && std::all_of(counts.begin(), counts.end(),
                                  [&](const auto& count) { return count.second <= kinds[count.first].left(); });
    }
  };

  Fill fill_of(Room room, const std::vector<Kind>& kinds) const {
    Fill fill;
    fill.known = true;
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      std::size_t count = 0;
      while (count < kinds[kind].left() && room.take(kinds[kind].need, request_.accelerator_type)) ++count;
      if (count > 0) fill.counts.emplace_back(kind, count);
      fill.total += count;
    }
    return fill;
  }

  // Always fills the node that takes the most of the remaining bundles.
  bool pack(std::size_t max_nodes) {
    std::vector<Kind> kinds = this->kinds();
    std::vector<Fill> fills(rooms_.size());
    for (std::size_t left = order_.size(); left > 0;) {
      if (used_.size() == max_nodes) return false;
      std::size_t best = rooms_.size();
      for (std::size_t room = 0; room < rooms_.size(); ++room) {
        if (!taken_[room].empty()) continue;
        if (!fills[room].holds(kinds)) fills[room] = fill_of(rooms_[room], kinds);
        if (fills[room].total > (best < rooms_.size() ? fills[best].total : 0)) best = room;
      }
      if (best == rooms_.size()) return false;
      for (const auto& [index, count] : fills[best].counts) {
        Kind& kind = kinds[index];
        for (std::size_t i = 0; i < count; ++i) {
          auto slot = rooms_[best].take(kind.need, request_.accelerator_type);
          taken_[best].emplace_back(kind.bundles[kind.placed++], *std::move(slot));
        }
      }
      left -= fills[best].total;
      used_.push_back(best);
    }
    return true;
  }

  // Places each bundle on the node with the fewest bundles of this gang that has room for it.
  bool spread(std::size_t max_per_node) {
    for (const Kind& kind : kinds()) {
      std::set<std::pair<std::size_t, std::size_t>> nodes;  // (bundles of this gang, node)
      for (std::size_t room = 0; room < rooms_.size(); ++room) nodes.emplace(taken_[room].size(), room);
      for (const std::size_t bundle : kind.bundles) {
        std::optional<Slot> slot;
        while (!slot) {
          if (nodes.empty() || nodes.begin()->first >= max_per_node) return false;
          const auto [count, room] = nodes.extract(nodes.begin()).value();
          slot = rooms_[room].take(kind.need, request_.accelerator_type);
          if (!slot) continue;
          taken_[room].emplace_back(bundle, *std::move(slot));
          nodes.emplace(count + 1, room);
          if (count == 0) used_.push_back(room);
        }
      }
    }
    return true;
  }

  const GangRequest& request_;
  std::vector<Room> rooms_;
  std::vector<Taken> taken_;
  std::vector<std::size_t> used_;
  std::vector<std::size_t> order_;
};

std::optional<std::vector<Slot>> place_workers(const GangRequest& request, std::vector<Room> rooms) {
  if (request.accelerator_type) {
    std::erase_if(rooms, [&](const Room& room) { return !room.has_accelerator(*request.accelerator_type); });
  }
  if (request.bundles.empty()) return std::vector<Slot>();
  if (rooms.empty()) return {};
  Layout layout(request, std::move(rooms));
  if (!layout.place_all()) return {};
  return std::move(layout).slots();
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

std::optional<Placement> place(const GangRequest& request, const std::vector<NodeInfo>& nodes) {
  std::vector<Room> rooms(nodes.begin(), nodes.end());
  if (request.trainer.empty()) {
    auto slots = place_workers(request, std::move(rooms));
    if (!slots) return {};
    return Placement{.trainer = {}, .slots = *std::move(slots)};
  }
  // The position of the trainer affects the room for the workers, so every position is tried.
  for (std::size_t i = 0; i < rooms.size(); ++i) {
    std::vector<Room> left = rooms;
    auto trainer = left[i].take(request.trainer, std::nullopt);
    if (!trainer) continue;
    if (auto slots = place_workers(request, std::move(left))) {
      return Placement{.trainer = *std::move(trainer), .slots = *std::move(slots)};
    }
  }
  return {};
}

std::vector<NodeInfo> emptied(std::vector<NodeInfo> nodes) {
  for (auto& node : nodes) {
    node.available = node.total;
    for (auto& gpu : node.gpus) gpu.available = 1.0;
  }
  return nodes;
}

std::map<std::string, double> gpu_shares(const Slot& slot) {
  std::map<std::string, double> shares;
  const double amount = amount_of(slot.resources, "GPU");
  for (const auto& id : slot.gpus) shares[id] = std::min(1.0, amount);
  return shares;
}

bool matches_accelerator(const Gpu& gpu, const std::string& accelerator_type) {
  return !gpu.type.empty() && lower(gpu.type).find(lower(accelerator_type)) != std::string::npos;
}

}  // namespace trireme::engine
