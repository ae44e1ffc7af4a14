#include "data/lane.h"

#include <algorithm>

namespace trireme::data {

Lane::Lane(Reading& reading, const Order& order, std::int64_t shard, std::int64_t row)
    : reading_(reading), window_(order, shard, row), begin_(window_.read_to()) {
  const auto pieces = order.pieces(shard, begin_);
  pieces_.assign(pieces.begin(), pieces.end());
}

void Lane::want(Span rows) { wanted_to_ = std::max(wanted_to_, window_.needs(rows).end); }

std::int64_t Lane::missing_rows() const {
  std::int64_t ahead = 0;  // rows that are read but not yet in the window
  for (const auto& task : tasks_) {
    for (const auto& stretch : task->read) ahead += stretch.count;
  }
  return std::max<std::int64_t>(wanted_to_ - window_.read_to() - ahead, 0);
}

std::int64_t Lane::open_pieces() const {
  return std::count_if(tasks_.begin(), tasks_.end(), [](const auto& task) { return !task->over; });
}

Lane::Task* Lane::next_task(std::size_t most) {
  for (const auto& task : tasks_) {
    if (!task->busy && !task->over && task->row < wanted_to_) return task.get();
  }
  if (tasks_.size() >= most || pieces_.empty() || begin_ >= wanted_to_) return nullptr;
  const FragmentSlice piece = pieces_.front();
  pieces_.pop_front();
  tasks_.push_back(std::make_unique<Task>(Task{FragmentReader(reading_, piece, begin_), false, 0, false, begin_, {}}));
  begin_ += piece.count;
  return tasks_.back().get();
}

void Lane::take(Task& task, Stretch stretch) {
  task.row = stretch.end();
  task.over = task.reader.over();
  task.read.push_back(std::move(stretch));
  settle();
}

void Lane::settle() {
  while (!tasks_.empty()) {
    Task& first = *tasks_.front();
    for (; !first.read.empty(); first.read.pop_front()) window_.append(std::move(first.read.front()));
    if (!first.over || first.busy) return;
    tasks_.pop_front();
  }
}

}  // namespace trireme::data
