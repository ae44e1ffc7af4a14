#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "engine/placement.h"
#include "engine/resources.h"

namespace trireme::engine {
namespace {

using base::amount;

struct Shortage {
  std::string name;
  double needed;
  double present;
};

bool custom(const std::string& name) { return name != "CPU" && name != "GPU"; }

double total_of(const std::vector<NodeInfo>& nodes, const std::string& name) {
  double total = 0.0;
  for (const auto& node : nodes) total += amount_of(node.total, name);
  return total;
}

double needed_of(const GangRequest& request, const std::string& name) {
  double needed = amount_of(request.trainer, name);
  for (const auto& bundle : request.bundles) needed += amount_of(bundle, name);
  return needed;
}

std::string where(const std::vector<NodeInfo>& nodes) {
  return nodes.size() == 1 ? "this machine" : fmt::format("none of the {} nodes", nodes.size());
}

std::set<std::string> names_in(const GangRequest& request) {
  std::set<std::string> names;
  const auto collect = [&](const Resources& resources) {
    for (const auto& [name, value] : resources) {
      if (value > kAmountTolerance) names.insert(name);
    }
  };
  collect(request.trainer);
  for (const auto& bundle : request.bundles) collect(bundle);
  return names;
}

// "4 x 2 + 1 for the trainer".
std::string arithmetic(const GangRequest& request, const std::string& name) {
  std::vector<std::pair<double, int>> groups;
  for (const auto& bundle : request.bundles) {
    const double value = amount_of(bundle, name);
    if (value <= kAmountTolerance) continue;
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == value; });
    if (same == groups.end()) {
      groups.emplace_back(value, 1);
    } else {
      ++same->second;
    }
  }
  std::vector<std::string> terms;
  for (const auto& [value, count] : groups) terms.push_back(fmt::format("{} x {}", count, amount(value)));
  const double trainer = amount_of(request.trainer, name);
  if (trainer > kAmountTolerance) terms.push_back(fmt::format("{} for the trainer", amount(trainer)));
  return base::join(terms, " + ");
}

std::string declare_more(const std::vector<Shortage>& shortages) {
  std::vector<std::string> arguments;
  std::vector<std::string> customs;
  std::vector<std::string> variables;
  for (const auto& [name, needed, present] : shortages) {
    if (custom(name)) {
      customs.push_back(fmt::format("\"{}\": {}", name, amount(needed)));
      continue;
    }
    const std::string most = amount(name == "GPU" ? std::ceil(needed) : needed);
    arguments.push_back(fmt::format("num_{}s = {}", name == "CPU" ? "cpu" : "gpu", most));
    variables.push_back(fmt::format("TRIREME_NUM_{}S={}", name, most));
  }
  if (!customs.empty()) arguments.push_back("resources = {" + base::join(customs, ", ") + "}");
  std::string text = "init(): " + base::join(arguments, ", ");
  if (!variables.empty()) text += ", or in the environment: " + base::join(variables, " ");
  return text;
}

base::Error not_enough(const GangRequest& request, const std::vector<Shortage>& shortages) {
  std::vector<std::string> sums;
  Resources trainer_without;
  std::vector<std::string> saved;
  for (const auto& [name, needed, present] : shortages) {
    sums.push_back(fmt::format("{}: {} needed ({}), {} available", name, amount(needed), arithmetic(request, name),
                               amount(present)));
    if (const double trainer = amount_of(request.trainer, name); trainer > kAmountTolerance) {
      trainer_without[name] = 0.0;
      saved.push_back(fmt::format("{} {}", amount(trainer), name));
    }
  }
  std::vector<std::string> ways = {"lower num_workers or resources_per_worker"};
  if (!saved.empty()) {
    ways.push_back(
        fmt::format("set trainer_resources = {}, which saves {}", to_text(trainer_without), base::join(saved, ", ")));
  }
  ways.push_back(fmt::format("declare more capacity, if the machine has it, in {}", declare_more(shortages)));
  ways.emplace_back("add nodes");
  std::string text = base::join(sums, "; ") + ". Options:";
  for (std::size_t i = 0; i < ways.size(); ++i) text += fmt::format("{} ({}) {}", i == 0 ? "" : ";", i + 1, ways[i]);
  return base::Error(std::move(text));
}

Result<void> check_custom_names(const GangRequest& request, const std::vector<NodeInfo>& nodes) {
  std::set<std::string> known;
  for (const auto& node : nodes) {
    for (const auto& [name, value] : node.total) {
      if (custom(name)) known.insert(name);
    }
  }
  const std::vector<std::string> names(known.begin(), known.end());
  for (const auto& name : names_in(request)) {
    if (!custom(name) || known.contains(name)) continue;
    const bool by_trainer = amount_of(request.trainer, name) > kAmountTolerance;
    return base::error(
        "{} requests \"{}\", a resource that no node has{} (custom resources here: {}). Options: (1) remove it; (2) "
        "declare "
        "it in init(): resources = {{\"{}\": {}}}; (3) add a node that has it",
        by_trainer ? "trainer_resources" : "resources_per_worker", name, base::did_you_mean(name, names),
        names.empty() ? "none" : base::join(names, ", "), name, amount(needed_of(request, name)));
  }
  return {};
}

Result<void> check_accelerator(const std::string& type, const std::vector<NodeInfo>& nodes) {
  std::set<std::string> types;
  for (const auto& node : nodes) {
    for (const auto& gpu : node.gpus) {
      if (matches_accelerator(gpu, type)) return {};
      types.insert(gpu.type.empty() ? "declared without a type" : gpu.type);
    }
  }
  return base::error(
      "accelerator_type = \"{}\": no GPU of this type (GPUs here: {}). Options: (1) use one of these types; (2) remove "
      "accelerator_type; (3) add a node with such a GPU",
      type, types.empty() ? "none" : base::join({types.begin(), types.end()}, ", "));
}

Result<void> check_gpus(const GangRequest& request, const std::vector<NodeInfo>& nodes) {
  double per_worker = 0.0;
  for (const auto& bundle : request.bundles) {
    const double gpus = amount_of(bundle, "GPU");
    per_worker = std::max(per_worker, gpus);
    if (gpus > 1.0 && std::abs(gpus - std::round(gpus)) > kAmountTolerance) {
      return base::error(
          "resources_per_worker = {{\"GPU\": {}}}: a worker takes a share of one GPU (below 1) or an integer number of "
          "GPUs; use {} or {}",
          amount(gpus), amount(std::floor(gpus)), amount(std::ceil(gpus)));
    }
  }
  const double needed = needed_of(request, "GPU");
  if (needed > kAmountTolerance && total_of(nodes, "GPU") < kAmountTolerance) {
    const std::string has_none = nodes.size() == 1 ? where(nodes) + " has none" : where(nodes) + " has any";
    const std::string who = per_worker > 0.0 ? fmt::format("use_gpu needs {} GPU per worker", amount(per_worker))
                                             : fmt::format("trainer_resources requests {} GPU", amount(needed));
    return base::error(
        "{}, but {} (no NVIDIA driver responds, or CUDA_VISIBLE_DEVICES hides its devices). Options: (1) {}; (2) "
        "declare "
        "devices that were not detected in {}; (3) add a node with GPUs",
        who, has_none, per_worker > 0.0 ? "remove use_gpu to train on CPUs" : "remove GPU from trainer_resources",
        declare_more({{"GPU", needed, 0.0}}));
  }
  if (request.accelerator_type) TRIREME_TRY(check_accelerator(*request.accelerator_type, nodes));
  return {};
}

base::Error no_arrangement(const GangRequest& request, const std::vector<NodeInfo>& nodes) {
  const std::string workers = base::count_of(request.bundles.size(), "worker");
  const std::string on = base::count_of(nodes.size(), "node");
  switch (request.strategy) {
    case Strategy::kStrictSpread:
      return base::error(
          "STRICT_SPREAD puts each worker on a separate node: {} do not fit on {}. Options: (1) "
          "placement_strategy = \"SPREAD\"; (2) use fewer workers; (3) add nodes",
          workers, on);
    case Strategy::kStrictPack:
      if (nodes.size() == 1) break;
      return base::error(
          "STRICT_PACK puts all workers on one node: none of the {} has room for {} x {}. Options: (1) "
          "placement_strategy = \"PACK\"; (2) lower num_workers or resources_per_worker; (3) add a larger node",
          on, request.bundles.size(), to_text(request.bundles.front()));
    default: break;
  }
  return base::error(
      "{} x {}{} cannot be placed on {}, although the totals are sufficient: each worker must fit on one node, and a "
      "share of a GPU on one device{}. Options: (1) use fewer workers; (2) use a resources_per_worker that divides "
      "evenly, such as \"GPU\": 0.5; (3) add nodes",
      request.bundles.size(), to_text(request.bundles.empty() ? Resources{} : request.bundles.front()),
      request.trainer.empty() ? "" : " and " + to_text(request.trainer) + " for the trainer", on,
      request.accelerator_type ? fmt::format(" of type \"{}\"", *request.accelerator_type) : "");
}

}  // namespace

Result<void> refuse_labels(const GangRequest& request) {
  if (request.label_selector.empty()) return {};
  return base::error(
      "label_selector: these nodes have no labels. Options: (1) remove it; (2) declare a custom resource on the target "
      "nodes and ask for it in resources_per_worker; (3) use the ray engine");
}

Result<void> check_capacity(const GangRequest& request, const std::vector<NodeInfo>& nodes) {
  TRIREME_TRY(check_custom_names(request, nodes));
  TRIREME_TRY(check_gpus(request, nodes));
  const bool time_shared =
      std::any_of(nodes.begin(), nodes.end(), [](const auto& node) { return !node.cpus_declared; });
  std::vector<Shortage> shortages;
  for (const auto& name : names_in(request)) {
    if (name == "CPU" && time_shared) continue;
    const Shortage sum{name, needed_of(request, name), total_of(nodes, name)};
    if (sum.needed > sum.present + kAmountTolerance) shortages.push_back(sum);
  }
  if (!shortages.empty()) return not_enough(request, shortages);
  if (!place(request, emptied(nodes))) return no_arrangement(request, nodes);
  return {};
}

}  // namespace trireme::engine
