#include "control/position_check.h"

#include <fmt/format.h>

#include <string_view>

#include "base/dict_fields.h"

namespace trireme::control {
namespace {

constexpr std::string_view kDatasets = "data/";
// A rank may be any number of reports ahead of the others. Older ones are no longer compared.
constexpr std::size_t kMostReports = 10'000;

}  // namespace

void PositionCheck::report(int rank, std::int64_t index, const Dict& positions) {
  for (const auto& [name, value] : positions) {
    const Dict* position = value.get_if<Dict>();
    // A dataset that every rank reads completely has a position for each rank.
    if (!name.starts_with(kDatasets) || !position || position->contains("whole")) continue;
    Reported& reported = reports_[index];
    const Place place{rank, base::int_of(*position, "epoch"), base::int_of(*position, "rows")};
    const auto [known, first] = reported.places.try_emplace(name, place);
    const Place& other = known->second;
    if (first || (other.epoch == place.epoch && other.row == place.row) || !reported.difference.empty()) continue;
    reported.difference =
        fmt::format("rank {} was at row {} of epoch {} of dataset '{}' and rank {} at row {} of epoch {}", place.rank,
                    place.row, place.epoch, name.substr(kDatasets.size()), other.rank, other.row, other.epoch);
  }
  if (reports_.size() > kMostReports) reports_.erase(reports_.begin());
}

std::string PositionCheck::take_difference(std::int64_t index) {
  const auto found = reports_.find(index);
  std::string difference = found == reports_.end() ? "" : std::move(found->second.difference);
  reports_.erase(reports_.begin(), reports_.upper_bound(index));
  return difference;
}

}  // namespace trireme::control
