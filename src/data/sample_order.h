#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "data/order.h"
#include "data/steps.h"

namespace trireme::data {

// The samples (rows of a dataset, numbered across all fragments) of the virtual shards of an epoch, in order. Holds one
// window of each requested shard.
class SampleOrder {
 public:
  SampleOrder(const Layout& layout, std::int64_t epoch);

  std::int64_t virtual_shards() const { return order_.virtual_shards(); }

  template <typename Visit>
  void each(const ShardRows& part, const Visit& visit) {
    const std::int64_t width = block_rows();
    for (std::int64_t at = part.rows.begin; at < part.rows.end;) {
      const std::int64_t block = at / width;
      const std::vector<std::int64_t>& samples = block_of(part.shard, block);
      const std::int64_t end = std::min(part.rows.end, (block + 1) * width);
      for (; at < end; ++at) visit(samples.at(static_cast<std::size_t>(at - block * width)));
    }
  }

 private:
  struct Shard {
    std::vector<FragmentSlice> pieces;
    std::vector<std::int64_t> begins;  // start of each piece in the shard
    std::int64_t block = -1;
    std::vector<std::int64_t> samples;  // of the block
  };

  std::int64_t block_rows() const;
  const std::vector<std::int64_t>& block_of(std::int64_t shard, std::int64_t block);

  Order order_;
  std::vector<std::int64_t> firsts_;  // first sample of each fragment
  std::map<std::int64_t, Shard> shards_;
};

}  // namespace trireme::data
