#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/dict_fields.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/table.h"

namespace trireme::cli {
namespace {

using base::error;
using base::Result;

struct Named {
  std::string name;
  double amount = 0.0;
};

// nullopt unless `text` is a number of at least 0.
std::optional<double> amount_in(std::string_view text) {
  double value = 0.0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0) {
    return std::nullopt;
  }
  return value;
}

std::optional<Named> named_amount(const std::string& text) {
  const auto end = text.find('=');
  if (end == std::string::npos || end == 0) return std::nullopt;
  auto value = amount_in(std::string_view(text).substr(end + 1));
  if (!value) return std::nullopt;
  return Named{text.substr(0, end), *value};
}

wire::SetCapacity request_of(const CapacityOptions& options) {
  wire::SetCapacity request;
  request.id = 1;
  request.num_cpus = options.num_cpus;
  request.num_gpus = options.num_gpus;
  for (const auto& text : options.resources) {
    if (auto named = named_amount(text)) request.resources[named->name] = named->amount;
  }
  return request;
}

Result<std::vector<control::RunEntry>> runs_meant(const std::string& what) {
  if (!what.empty()) {
    TRIREME_ASSIGN(auto entry, find_active(what));
    return std::vector{std::move(entry)};
  }
  auto entries = control::RunRegistry().list_runs();
  std::erase_if(entries,
                [](const control::RunEntry& each) { return !control::is_active(each) || control::is_elsewhere(each); });
  if (entries.empty()) {
    return error("no run is active on this machine; a driver declares its capacity in init() or with TRIREME_NUM_CPUS");
  }
  return entries;
}

// "CPU 2 of 4, licence 0 of 1 in use".
std::string offer_text(const Dict& told) {
  const Dict* total = base::dict_of(told, "total");
  const Dict* in_use = base::dict_of(told, "in_use");
  std::vector<std::string> parts;
  for (const auto& [name, value] : total ? *total : Dict()) {
    const double offered = value.is_number() ? value.as_double() : 0.0;
    const double used = in_use ? base::number_of(*in_use, name) : 0.0;
    parts.push_back(fmt::format("{} {} of {}", name, base::amount(std::max(0.0, used)), base::amount(offered)));
  }
  if (parts.empty()) return "nothing";
  return base::join(parts, ", ") + " in use" + (base::flag_of(told, "cpus_declared") ? "" : ", CPUs are time-shared");
}

}  // namespace

std::string amount_problem(const std::string& text) {
  return amount_in(text) ? std::string() : fmt::format("'{}' must be a number of at least 0", text);
}

std::string resource_problem(const std::string& text) {
  auto named = named_amount(text);
  if (!named) return fmt::format("'{}' is not a resource: write NAME=AMOUNT with an amount of at least 0", text);
  if (named->name == "CPU") return "'CPU' is set by --num-cpus";
  if (named->name == "GPU") return "'GPU' is set by --num-gpus";
  return {};
}

Result<int> capacity(const CapacityOptions& options) {
  TRIREME_ASSIGN(auto entries, runs_meant(options.run));
  const wire::SetCapacity request = request_of(options);
  int code = kDone;
  std::vector<std::vector<std::string>> rows;
  for (const auto& entry : entries) {
    auto answer = ask(entry, request);
    const Dict* told = answer ? answer->get_if<Dict>() : nullptr;
    if (!told) {
      code = kFailed;
      fmt::print(stderr, "trireme: run {}: {}\n", entry.name,
                 answer ? "the reply has no capacity" : answer.error().message());
      continue;
    }
    rows.push_back({entry.name, base::text_of(*told, "host"), offer_text(*told)});
  }
  fmt::print("{}", table(rows));
  return code;
}

}  // namespace trireme::cli
