#include "trireme/store.h"

#include "api/train_session.h"

namespace trireme::store {
namespace {

worker::Session& session(const char* caller) {
  auto& current = api::current(caller);
  if (!current.session)
    throw std::runtime_error(fmt::format("{}() is not available in local mode: there are no other workers", caller));
  return *current.session;
}

template <typename T>
T value_or_timeout(base::Result<T> result) {
  if (!result && result.error().code() == base::ErrorCode::kTimeout) throw Timeout(result.error().message());
  return api::value_or_throw(std::move(result));
}

}  // namespace

void set(const std::string& key, const std::string& value) {
  api::value_or_throw(session("store::set").store_set(key, value));
}

std::string get(const std::string& key, std::chrono::milliseconds timeout) {
  return value_or_timeout(session("store::get").store_get(key, timeout));
}

std::vector<std::string> multi_get(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
  return value_or_timeout(session("store::multi_get").store_multi_get(keys, timeout));
}

void append(const std::string& key, const std::string& value) {
  api::value_or_throw(session("store::append").store_append(key, value));
}

std::int64_t add(const std::string& key, std::int64_t amount) {
  return api::value_or_throw(session("store::add").store_add(key, amount));
}

void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
  value_or_timeout(session("store::wait").store_wait(keys, timeout));
}

bool contains(const std::vector<std::string>& keys) {
  return api::value_or_throw(session("store::contains").store_check(keys));
}

bool erase(const std::string& key) { return api::value_or_throw(session("store::erase").store_delete(key)); }

std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
  return api::value_or_throw(session("store::compare_set").store_compare_set(key, expected, desired));
}

std::int64_t size() { return api::value_or_throw(session("store::size").store_count()); }

}  // namespace trireme::store
