#include "data/window.h"

#include "base/check.h"

namespace trireme::data {

std::size_t View::Rows::stretch_of(std::int64_t read_row) const {
  // Stretches have about the same size: the first guess is nearly always right.
  const std::int64_t first = stretches.front().begin;
  const std::int64_t all = stretches.back().end() - first;
  auto guess = static_cast<std::size_t>(static_cast<double>(read_row - first) / static_cast<double>(all) *
                                        static_cast<double>(stretches.size()));
  guess = std::min(guess, stretches.size() - 1);
  while (read_row < stretches[guess].begin) --guess;
  while (read_row >= stretches[guess].end()) ++guess;
  return guess;
}

void View::append_runs(std::vector<std::shared_ptr<const Chunk>>& chunks, std::vector<Run>& runs) const {
  std::vector<std::uint32_t> numbers;  // indices of the current window's chunks, plus one; 0: not added yet
  const Rows* window = nullptr;
  each_place([&](const Rows& rows, std::size_t stretch, std::int64_t read_row, std::int64_t count) {
    if (window != &rows) {
      window = &rows;
      numbers.assign(rows.stretches.size(), 0);
    }
    const Stretch& found = rows.stretches[stretch];
    if (numbers[stretch] == 0) {
      chunks.push_back(found.chunk);
      numbers[stretch] = static_cast<std::uint32_t>(chunks.size());
    }
    runs.push_back({numbers[stretch] - 1, found.chunk_row + read_row - found.begin, count});
  });
}

Window::Window(const Order& order, std::int64_t shard, std::int64_t row)
    : order_(&order), shard_(shard), rows_(order.rows_of(shard)), width_(order.window_rows()) {
  read_to_ = needs({row, row}).begin;
}

Span Window::needs(Span rows) const {
  if (width_ == 0) return rows;
  return {rows.begin / width_ * width_, std::min((rows.end + width_ - 1) / width_ * width_, rows_)};
}

void Window::append(Stretch stretch) {
  TRIREME_CHECK(stretch.begin == read_to_, "row {} was read after row {}", stretch.begin, read_to_);
  read_to_ = stretch.end();
  stretches_.push_back(std::move(stretch));
}

std::shared_ptr<const View::Rows> Window::part(Span read) const {
  auto rows = std::make_shared<View::Rows>();
  rows->begin = read.begin;
  auto at = std::partition_point(stretches_.begin(), stretches_.end(),
                                 [&](const Stretch& each) { return each.end() <= read.begin; });
  for (; at != stretches_.end() && at->begin < read.end; ++at) rows->stretches.push_back(*at);
  if (width_ > 0) rows->permutation = order_->permutation(shard_, read.begin / width_);
  return rows;
}

View Window::view(Span rows) {
  if (width_ == 0) return View({part(rows)}, rows);
  std::vector<std::shared_ptr<const View::Rows>> windows;
  for (std::int64_t number = rows.begin / width_; number * width_ < rows.end; ++number) {
    auto known =
        std::find_if(shuffled_.begin(), shuffled_.end(), [&](const auto& each) { return each.first == number; });
    if (known == shuffled_.end()) {
      const std::int64_t begin = number * width_;
      shuffled_.emplace_back(number, part({begin, std::min(begin + width_, rows_)}));
      known = shuffled_.end() - 1;
    }
    windows.push_back(known->second);
  }
  return View(std::move(windows), rows);
}

std::int64_t Window::release_before(std::int64_t row) {
  const std::int64_t keep = width_ == 0 || row >= rows_ ? row : row / width_ * width_;
  std::int64_t bytes = 0;
  while (!stretches_.empty() && stretches_.front().end() <= keep) {
    bytes += stretches_.front().bytes();
    stretches_.pop_front();
  }
  while (!shuffled_.empty() && (shuffled_.front().first + 1) * width_ <= keep) shuffled_.pop_front();
  if (row >= rows_) shuffled_.clear();
  return bytes;
}

}  // namespace trireme::data
