#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "trireme/context.h"
#include "worker/session.h"

namespace trireme::api {

class CancelHooks;
class WorkerDatasets;

// The state behind the calls of context.h while a training function runs in this process: a worker's session, or, in
// local mode, only memory.
struct Current {
  Context context;
  std::shared_ptr<worker::Session> session;  // empty in local mode; shared with the caller of the function
  std::shared_ptr<CancelHooks> hooks;        // empty in local mode; shared with the thread that calls them
  WorkerDatasets* shards = nullptr;          // of the datasets passed to the trainer

  // Threads of the function may report and create sources at the same time: for everything below. Does not lock in a
  // forked child, which has no other thread and whose copy of the mutex may be locked.
  std::unique_lock<std::mutex> lock() const;
  std::unique_ptr<std::mutex> mutex = std::make_unique<std::mutex>();  // a Current can be moved
  std::optional<Checkpoint> checkpoint;  // to start from; in local mode the last reported one
  std::optional<Metrics> metrics;        // of the last report in local mode
  std::int64_t reports = 0;

  // The live position sources (trireme/position.h), by name.
  std::map<std::string, std::function<Dict()>> positions;
  std::map<std::string, int> positions_made;  // by kind
  Dict stored_positions;                      // of the checkpoint to start from: those not restored yet
  bool data_taken = false;                    // stored positions no longer apply
};

// Makes `current` the current session for the lifetime of this object. One function runs at a time.
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

// All positions by name. Null for a stored position that was not restored yet: it is kept unchanged.
Dict positions_now(const Current& current);

// The current session; null outside of a training function.
Current* current_if_any();
// The current session. Throws std::runtime_error naming the caller if called outside of a training function or in a
// process that the worker has forked.
Current& current(const char* caller);
// The same for callers that only read its values: also allowed in a forked process.
const Current& current_values(const char* caller);

// Throws the error of a call in the training function; Interrupted if the attempt is cancelled.
[[noreturn]] void throw_error(const base::Error& error);

template <typename T>
T value_or_throw(base::Result<T> result) {
  if (!result) throw_error(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

}  // namespace trireme::api
