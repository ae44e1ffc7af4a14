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

// Barriers and broadcasts: the ranks meet once per sequence number and leave together with the data of rank 0. A rank
// that has finished never arrives: ranks that wait for it get an error instead of waiting forever.
class CollectiveRendezvous {
 public:
  // `data` is from rank 0; empty for a barrier.
  using Answer = std::function<void(const base::Result<std::string>& data)>;

  explicit CollectiveRendezvous(int num_ranks = 0) : num_ranks_(num_ranks) {}

  // `kind` is "barrier" or "broadcast". Ranks that meet in different kinds get an error.
  void come(int rank, std::int64_t sequence, const std::string& kind, std::string data, Answer answer);
  void finished(int rank);
  // Whether the rank waits in a collective for other ranks.
  bool waits(int rank) const { return waiting(rank) > 0; }
  // The number of collectives that the rank waits in: each thread may wait in one.
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
