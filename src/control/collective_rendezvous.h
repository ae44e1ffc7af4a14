#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace trireme::control {

// Barriers and broadcasts: the ranks meet, once per sequence number, and leave together with what rank 0 brought.
// A rank that has finished will never come: those who wait for it get an error instead of waiting for ever.
class CollectiveRendezvous {
 public:
  // `data` is what rank 0 brought; empty for a barrier.
  using Answer = std::function<void(const base::Result<std::string>& data)>;

  explicit CollectiveRendezvous(int num_ranks = 0) : num_ranks_(num_ranks) {}

  // `kind` is "barrier" or "broadcast": ranks that meet in different ones are told so.
  void come(int rank, std::int64_t sequence, const std::string& kind, std::string data, Answer answer);
  void finished(int rank);
  // Whether it has come to one, and others have not.
  bool waits(int rank) const { return waiting(rank) > 0; }
  // To how many: threads may have come to one each.
  std::int64_t waiting(int rank) const;
  void clear(int num_ranks);

 private:
  struct Collective {
    std::string kind;
    std::string data;
    std::map<int, Answer> waiting;
  };

  void fail(std::int64_t sequence, const std::string& why);

  int num_ranks_;
  std::map<std::int64_t, Collective> collectives_;
  std::set<int> finished_;
};

}  // namespace trireme::control
