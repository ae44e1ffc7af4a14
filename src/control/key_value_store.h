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

// The rendezvous store of one attempt. It is in the controller, so it survives the death of any rank. Waiters are
// answered as soon as their keys are set.
class KeyValueStore {
 public:
  using Answer = std::function<void(const std::string& value)>;
  using ListAnswer = std::function<void(const std::vector<std::string>& values)>;

  // The origin of a request: the rank to forget when it disconnects, and the request that it waits with.
  struct Asker {
    Asker(int asking, std::int64_t its_request = 0, double its_timeout_s = 0)  // NOLINT: a rank alone is one
        : owner(asking), request(its_request), timeout_s(its_timeout_s) {}

    int owner;
    std::int64_t request;
    double timeout_s;
  };
  struct Wait {
    Asker asker;
    std::vector<std::string> missing;
  };

  void set(const std::string& key, std::string value);
  // Answers at once if the key is set, otherwise when it is set.
  void get(Asker asker, const std::string& key, Answer answer);
  void wait(Asker asker, const std::vector<std::string>& keys, Answer answer);
  // Answers with the values of all keys when all of them are set.
  void multi_get(Asker asker, const std::vector<std::string>& keys, ListAnswer answer);
  // An absent key counts as empty.
  void append(const std::string& key, const std::string& value);
  // Fails if the value is not a number.
  base::Result<std::int64_t> add(const std::string& key, std::int64_t amount);
  bool contains(const std::vector<std::string>& keys) const;
  bool erase(const std::string& key);
  // Sets `desired` if the key holds `expected` (or is absent and `expected` is empty); returns the resulting value.
  std::string compare_set(const std::string& key, const std::string& expected, std::string desired);
  std::size_t size() const { return values_.size(); }
  // Requests that are not answered yet, including those that may have timed out.
  std::vector<Wait> waits() const;
  // Number of changes: while it stays the same, no waiter was answered.
  std::uint64_t changes() const { return changes_; }

  void forget(int owner);
  void clear();

 private:
  struct Waiter {
    Asker asker;
    std::set<std::string> missing;
    std::string first;  // the key whose value is the answer
    Answer answer;
  };

  std::map<std::string, std::string> values_;
  std::list<Waiter> waiters_;
  std::uint64_t changes_ = 0;
};

}  // namespace trireme::control
