#include "data/sample_order.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace trireme::data {

SampleOrder::SampleOrder(const Layout& layout, std::int64_t epoch) : order_(layout, epoch) {
  std::exclusive_scan(layout.fragment_rows.begin(), layout.fragment_rows.end(), std::back_inserter(firsts_),
                      std::int64_t{0});
}

std::int64_t SampleOrder::block_rows() const {
  constexpr std::int64_t kUnshuffled = 1 << 16;
  return order_.window_rows() > 0 ? order_.window_rows() : kUnshuffled;
}

const std::vector<std::int64_t>& SampleOrder::block_of(std::int64_t shard, std::int64_t block) {
  auto [found, added] = shards_.try_emplace(shard);
  Shard& of = found->second;
  if (added) {
    of.pieces = order_.pieces(shard, 0);
    std::int64_t at = 0;
    for (const auto& piece : of.pieces) {
      of.begins.push_back(at);
      at += piece.count;
    }
  }
  if (of.block == block) return of.samples;
  of.block = block;
  const std::int64_t begin = block * block_rows();
  const std::int64_t end = std::min(begin + block_rows(), order_.rows_of(shard));
  std::vector<std::int64_t> read;
  read.reserve(static_cast<std::size_t>(std::max<std::int64_t>(end - begin, 0)));
  auto piece =
      static_cast<std::size_t>(std::upper_bound(of.begins.begin(), of.begins.end(), begin) - of.begins.begin());
  for (piece = piece == 0 ? 0 : piece - 1; piece < of.pieces.size() && of.begins[piece] < end; ++piece) {
    const FragmentSlice& from = of.pieces[piece];
    const std::int64_t first = firsts_[from.fragment] + from.row - of.begins[piece];
    const std::int64_t last = std::min(end, of.begins[piece] + from.count);
    for (std::int64_t row = std::max(begin, of.begins[piece]); row < last; ++row) read.push_back(first + row);
  }
  if (order_.window_rows() == 0) {
    of.samples = std::move(read);
    return of.samples;
  }
  const auto permutation = order_.permutation(shard, block);
  of.samples.resize(read.size());
  for (std::size_t i = 0; i < read.size(); ++i) of.samples[i] = read[permutation[i]];
  return of.samples;
}

}  // namespace trireme::data
