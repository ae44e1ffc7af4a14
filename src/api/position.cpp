#include "trireme/position.h"

#include <fmt/format.h>

#include "api/train_session.h"

namespace trireme {
namespace api {

Dict positions_now(const Current& current) {
  Dict places;
  const auto lock = current.lock();
  for (const auto& [name, stored] : current.stored_positions) places[name] = Value();
  for (const auto& [name, now] : current.positions) places[name] = now();
  return places;
}

}  // namespace api

namespace detail {

PositionSource::PositionSource(const std::string& kind, std::function<Dict()> now) {
  api::Current* current = api::current_if_any();
  if (!current) return;
  const auto lock = current->lock();
  name_ = fmt::format("{}/{}", kind, current->positions_made[kind]++);
  add(!current->data_taken, std::move(now));
}

PositionSource::PositionSource(Named named, std::function<Dict()> now) : name_(std::move(named.name)) {
  api::Current* current = api::current_if_any();
  if (!current) return;
  const auto lock = current->lock();
  add(true, std::move(now));
}

// Under the mutex.
void PositionSource::add(bool look, std::function<Dict()> now) {
  api::Current& current = *api::current_if_any();
  current.positions[name_] = std::move(now);
  const Value* stored = current.stored_positions.find(name_);
  if (look && stored && stored->get_if<Dict>()) stored_ = *stored->get_if<Dict>();
  current.stored_positions.erase(name_);
}

PositionSource::~PositionSource() {
  // A source that outlives its function has nothing to unregister from.
  api::Current* current = api::current_if_any();
  if (!current || name_.empty()) return;
  const auto lock = current->lock();
  current->positions.erase(name_);
}

void PositionSource::begin() const {
  api::Current* current = api::current_if_any();
  if (!current) return;
  const auto lock = current->lock();
  current->data_taken = true;
}

}  // namespace detail
}  // namespace trireme
