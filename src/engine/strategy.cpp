#include <algorithm>

#include "base/config_fields.h"
#include "base/text.h"
#include "engine/engine.h"

namespace trireme::engine {

Result<Strategy> parse_strategy(const std::string& name) {
  const auto& names = base::kPlacementStrategies;
  const auto found = std::find(names.begin(), names.end(), name);
  // ScalingConfig has checked the name with suggestions.
  if (found == names.end()) return base::error("placement_strategy = '{}': unknown", name);
  return static_cast<Strategy>(found - names.begin());
}

const char* to_string(Strategy strategy) { return base::kPlacementStrategies.at(static_cast<std::size_t>(strategy)); }

}  // namespace trireme::engine
