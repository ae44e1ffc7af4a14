#include <sys/syscall.h>
#include <unistd.h>

#include "worker/session.h"

// Requests that the controller answers: the store, collectives of all ranks, the list of checkpoints.

namespace trireme::worker {

template <typename Request>
Result<Value> Session::ask(Request request, std::optional<base::Seconds> timeout) {
  std::future<Result<Value>> answer;
  {
    std::lock_guard lock(mutex_);
    if (const auto why = closed(); !why.empty()) return base::error("{}", why);
    request.id = next_request_++;
    Pending& made = requests_[request.id];
    made.thread = static_cast<int>(::syscall(SYS_gettid));
    answer = made.answer.get_future();
  }
  const std::int64_t id = request.id;
  const wire::Message message(std::move(request));
  if (auto posted = post(message); !posted) {
    std::lock_guard lock(mutex_);
    requests_.erase(id);
    return std::move(posted).error().wrap(wire::name_of(message));
  }
  if (timeout && answer.wait_for(*timeout) != std::future_status::ready) {
    std::lock_guard lock(mutex_);
    // The reply may have arrived between the wait and the lock.
    if (requests_.erase(id) > 0) {
      return base::error(base::ErrorCode::kTimeout, "timed out after {:.3g} s", timeout->count());
    }
  }
  return answer.get();
}

Result<List> Session::list_checkpoints(bool validated, std::optional<base::Seconds> timeout) {
  wire::ListCheckpoints request;
  {
    std::lock_guard lock(mutex_);
    request.reports = next_report_;
  }
  request.validated = validated;
  auto answer = ask(request, timeout);
  if (!answer && answer.error().code() == base::ErrorCode::kTimeout) {
    request.now = true;
    answer = ask(request);
  }
  if (!answer) return std::move(answer).error();
  return answer->as_list();
}

Result<void> Session::store_set(const std::string& key, std::string value) {
  wire::StoreSet request;
  request.key = key;
  request.value.data = std::move(value);
  TRIREME_TRY(ask(std::move(request)));
  return {};
}

Result<std::string> Session::store_get(const std::string& key, base::Seconds timeout) {
  wire::StoreGet request;
  request.key = key;
  request.timeout_s = timeout.count();
  TRIREME_ASSIGN(auto value, ask(std::move(request), timeout), "store key '{}'", key);
  return value.as_bytes().data;
}

Result<std::int64_t> Session::store_add(const std::string& key, std::int64_t amount) {
  wire::StoreAdd request;
  request.key = key;
  request.amount = amount;
  TRIREME_ASSIGN(auto value, ask(std::move(request)));
  return value.as_int();
}

Result<void> Session::store_wait(const std::vector<std::string>& keys, base::Seconds timeout) {
  wire::StoreWait request;
  request.keys = keys;
  request.timeout_s = timeout.count();
  TRIREME_TRY(ask(std::move(request), timeout), "store keys {}", fmt::join(keys, ", "));
  return {};
}

Result<std::vector<std::string>> Session::store_multi_get(const std::vector<std::string>& keys, base::Seconds timeout) {
  wire::StoreMultiGet request;
  request.keys = keys;
  request.timeout_s = timeout.count();
  TRIREME_ASSIGN(auto value, ask(std::move(request), timeout), "store keys {}", fmt::join(keys, ", "));
  std::vector<std::string> values;
  for (const auto& each : value.as_list()) values.push_back(each.as_bytes().data);
  return values;
}

Result<void> Session::store_append(const std::string& key, std::string value) {
  wire::StoreAppend request;
  request.key = key;
  request.value.data = std::move(value);
  TRIREME_TRY(ask(std::move(request)));
  return {};
}

Result<bool> Session::store_check(const std::vector<std::string>& keys) {
  wire::StoreCheck request;
  request.keys = keys;
  TRIREME_ASSIGN(auto value, ask(std::move(request)));
  return value.as_bool();
}

Result<bool> Session::store_delete(const std::string& key) {
  wire::StoreDelete request;
  request.key = key;
  TRIREME_ASSIGN(auto value, ask(std::move(request)));
  return value.as_bool();
}

Result<std::string> Session::store_compare_set(const std::string& key, std::string expected, std::string desired) {
  wire::StoreCompareSet request;
  request.key = key;
  request.expected.data = std::move(expected);
  request.desired.data = std::move(desired);
  TRIREME_ASSIGN(auto value, ask(std::move(request)));
  return value.as_bytes().data;
}

Result<std::int64_t> Session::store_count() {
  TRIREME_ASSIGN(auto value, ask(wire::StoreCount{}));
  return value.as_int();
}

void Session::set_collective_timeout(base::Seconds timeout) {
  wire::CollectiveTimeout message;
  message.seconds = timeout.count();
  tell(message);
}

Result<void> Session::barrier() {
  wire::Barrier request;
  {
    std::lock_guard lock(mutex_);
    request.sequence = next_collective_++;
  }
  TRIREME_TRY(ask(std::move(request)));
  return {};
}

Result<std::string> Session::broadcast(std::optional<std::string> data) {
  wire::Broadcast request;
  {
    std::lock_guard lock(mutex_);
    request.sequence = next_collective_++;
  }
  if (data && data->size() + 1024 > wire::kWorkerFrameLimit) {
    return base::error("cannot broadcast {} bytes: the limit is {}", data->size(), wire::kWorkerFrameLimit);
  }
  if (data) request.data = Bytes{*std::move(data)};
  TRIREME_ASSIGN(auto value, ask(std::move(request)));
  return value.as_bytes().data;
}

}  // namespace trireme::worker
