#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace trireme::control {

// The rendezvous store of one attempt. Lives in the controller, so it survives the death of any rank. Waiters are
// answered as soon as their keys are there.
class KeyValueStore {
 public:
  using Answer = std::function<void(const std::string& value)>;

  void set(const std::string& key, std::string value);
  // Answers at once, or when the key is set. `owner` is whom to forget when it leaves.
  void get(int owner, const std::string& key, Answer answer);
  void wait(int owner, const std::vector<std::string>& keys, Answer answer);
  // A value that is no number is an error.
  base::Result<std::int64_t> add(const std::string& key, std::int64_t amount);
  bool contains(const std::vector<std::string>& keys) const;
  bool erase(const std::string& key);
  // Sets `desired` where the key holds `expected` (or is absent and `expected` is empty); returns what it holds then.
  std::string compare_set(const std::string& key, const std::string& expected, std::string desired);
  std::size_t size() const { return values_.size(); }

  void forget(int owner);
  void clear();

 private:
  struct Waiter {
    int owner;
    std::set<std::string> missing;
    std::string first;  // the key whose value is the answer
    Answer answer;
  };

  std::map<std::string, std::string> values_;
  std::list<Waiter> waiters_;
};

}  // namespace trireme::control
