#include "control/key_value_store.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace trireme::control {

void KeyValueStore::set(const std::string& key, std::string value) {
  values_[key] = std::move(value);
  ++changes_;
  // An answer may call the store again, so waiters leave the list before they are answered.
  std::list<Waiter> served;
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    auto next = std::next(it);
    it->missing.erase(key);
    if (it->missing.empty()) served.splice(served.end(), waiters_, it);
    it = next;
  }
  for (auto& waiter : served) {
    // Another rank may have deleted it while this one waited for its other keys.
    auto held = values_.find(waiter.first);
    waiter.answer(held == values_.end() ? "" : held->second);
  }
}

void KeyValueStore::get(Asker asker, const std::string& key, Answer answer) { wait(asker, {key}, std::move(answer)); }

void KeyValueStore::wait(Asker asker, const std::vector<std::string>& keys, Answer answer) {
  std::set<std::string> missing;
  for (const auto& key : keys) {
    if (!values_.contains(key)) missing.insert(key);
  }
  std::string first = keys.empty() ? "" : keys.front();
  if (missing.empty()) {
    answer(keys.empty() ? "" : values_[first]);
  } else {
    waiters_.push_back({asker, std::move(missing), std::move(first), std::move(answer)});
  }
}

void KeyValueStore::multi_get(Asker asker, const std::vector<std::string>& keys, ListAnswer answer) {
  wait(asker, keys, [this, keys, answer = std::move(answer)](const std::string&) {
    std::vector<std::string> values;
    for (const auto& key : keys) {
      auto held = values_.find(key);
      values.push_back(held == values_.end() ? "" : held->second);
    }
    answer(values);
  });
}

void KeyValueStore::append(const std::string& key, const std::string& value) {
  auto held = values_.find(key);
  set(key, held == values_.end() ? value : held->second + value);
}

base::Result<std::int64_t> KeyValueStore::add(const std::string& key, std::int64_t amount) {
  std::int64_t number = 0;
  if (auto it = values_.find(key); it != values_.end()) {
    const std::string& text = it->second;
    auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (failure != std::errc() || end != text.data() + text.size()) {
      return base::error("store key '{}' does not hold a number to add to", key);
    }
  }
  std::int64_t sum = 0;
  if (__builtin_add_overflow(number, amount, &sum)) return base::error("store key '{}' would overflow", key);
  set(key, std::to_string(sum));
  return sum;
}

bool KeyValueStore::contains(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return values_.contains(key); });
}

bool KeyValueStore::erase(const std::string& key) { return values_.erase(key) > 0; }

std::string KeyValueStore::compare_set(const std::string& key, const std::string& expected, std::string desired) {
  auto it = values_.find(key);
  if (it == values_.end()) {
    if (!expected.empty()) return expected;
    set(key, desired);
    return desired;
  }
  if (it->second != expected) return it->second;
  set(key, desired);
  return desired;
}

std::vector<KeyValueStore::Wait> KeyValueStore::waits() const {
  std::vector<Wait> found;
  for (const auto& waiter : waiters_) {
    found.push_back({waiter.asker, {waiter.missing.begin(), waiter.missing.end()}});
  }
  return found;
}

void KeyValueStore::forget(int owner) {
  waiters_.remove_if([&](const Waiter& waiter) { return waiter.asker.owner == owner; });
}

void KeyValueStore::clear() {
  values_.clear();
  waiters_.clear();
}

}  // namespace trireme::control
