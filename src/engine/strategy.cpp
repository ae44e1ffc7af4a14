#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/text.h"
#include "engine/engine.h"

namespace trireme::engine {
namespace {

constexpr std::array<std::pair<const char*, Strategy>, 4> kStrategies = {{
    {"PACK", Strategy::kPack},
    {"SPREAD", Strategy::kSpread},
    {"STRICT_PACK", Strategy::kStrictPack},
    {"STRICT_SPREAD", Strategy::kStrictSpread},
}};

}  // namespace

Result<Strategy> parse_strategy(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, strategy] : kStrategies) {
    if (name == known) return strategy;
    names.emplace_back(known);
  }
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return base::error("unknown placement_strategy '{}'{} (known: {})", name, base::did_you_mean(upper, names),
                     base::join(names, ", "));
}

const char* to_string(Strategy strategy) {
  for (const auto& [name, known] : kStrategies) {
    if (known == strategy) return name;
  }
  TRIREME_CHECK(false, "strategy {}", static_cast<int>(strategy));
}

}  // namespace trireme::engine
