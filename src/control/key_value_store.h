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

  // Who asks: whom to forget when it leaves, and what it waits with.
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
  // Answers at once, or when the key is set.
  void get(Asker asker, const std::string& key, Answer answer);
  void wait(Asker asker, const std::vector<std::string>& keys, Answer answer);
  // A value that is no number is an error.
  base::Result<std::int64_t> add(const std::string& key, std::int64_t amount);
  bool contains(const std::vector<std::string>& keys) const;
  bool erase(const std::string& key);
  // Sets `desired` where the key holds `expected` (or is absent and `expected` is empty); returns what it holds then.
  std::string compare_set(const std::string& key, const std::string& expected, std::string desired);
  std::size_t size() const { return values_.size(); }
  // Whoever is not answered yet. One whose time is over may be among them.
  std::vector<Wait> waits() const;
  // Counts what was set: as long as it stays the same, nobody who waits was answered.
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
