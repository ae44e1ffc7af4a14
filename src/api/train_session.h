#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "trireme/context.h"
#include "worker/session.h"

namespace trireme::api {

class WorkerDatasets;

// What the calls of context.h speak to while a training function runs in this process: a worker's session, or, in local
// mode, nothing but memory.
struct Current {
  Context context;
  std::shared_ptr<worker::Session> session;  // empty in local mode; shared with whoever runs the function
  std::optional<Checkpoint> checkpoint;      // to begin with; in local mode the last one that was reported
  std::optional<Metrics> metrics;            // of the last report in local mode
  std::int64_t reports = 0;

  // What has a place in its data (trireme/position.h), by name, while it lives.
  std::map<std::string, std::function<Dict()>> positions;
  std::map<std::string, int> positions_made;  // by kind
  Dict stored_positions;                      // of the checkpoint to begin with: those that nobody has taken up yet
  bool data_taken = false;                    // stored places are of no use any more
  WorkerDatasets* shards = nullptr;           // of the datasets that the trainer was given
};

// Makes `current` the one until the returned object goes. One function runs at a time.
class CurrentScope {
 public:
  explicit CurrentScope(Current& current);
  ~CurrentScope();
  CurrentScope(const CurrentScope&) = delete;
  CurrentScope& operator=(const CurrentScope&) = delete;
};

Context context_of(const wire::Start& start);
// The checkpoint in the run's storage, as the user can open it: a path, or a URI.
Checkpoint checkpoint_in_storage(const wire::Start& start, const std::string& path);

// The places of everything that has one; null where nobody has taken up the stored one yet: it stays as it is.
Dict positions_now(const Current& current);

// The one that runs, if any.
Current* current_if_any();
// The one that runs; throws std::runtime_error that names the caller outside of a training function, and in a process
// that the worker has forked.
Current& current(const char* caller);
// The same for those who only read what it holds, which a forked process may too.
const Current& current_values(const char* caller);

// Of a call of the running function: Interrupted where that is to be left.
[[noreturn]] void throw_error(const base::Error& error);

template <typename T>
T value_or_throw(base::Result<T> result) {
  if (!result) throw_error(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

}  // namespace trireme::api
