#include "data/fragment_reader.h"

#include <algorithm>

#include "base/text.h"

namespace trireme::data {

bool FragmentReader::open(std::optional<Failure>& failure) {
  if (stream_) return true;
  const std::int64_t end = piece_.row + piece_.count;
  // To the fragment's end, however many rows it has now: see check_end().
  auto opened = reading_.source->open(piece_.fragment, piece_.row, end < fragment().rows ? end : kNoEnd);
  if (!opened) {
    failure = Failure{std::move(opened).error().wrap(fmt::format("could not read {}", fragment().name)), true};
    return false;
  }
  stream_ = std::make_unique<Stream>(std::move(opened->stream), reading_.schema);
  stream_row_ = opened->first_row;
  return true;
}

// Rows beyond the counted ones would be lost silently.
void FragmentReader::check_end(std::optional<Failure>& failure) {
  if (piece_.row != fragment().rows || !stream_) return;
  std::optional<Stream::Failure> why;  // ignored: all rows are here
  if (stream_row_ > piece_.row || stream_->next(why)) {
    failure =
        Failure{base::error("{} has more rows than the {} counted before: if it has changed, recreate the dataset",
                            fragment().name, fragment().rows)};
  }
}

std::optional<Stretch> FragmentReader::next(std::optional<Failure>& failure) {
  while (piece_.count > 0) {
    if (!open(failure)) return {};
    std::optional<Stream::Failure> why;
    auto chunk = stream_->next(why);
    if (why) {
      failure = Failure{std::move(why->error).wrap(fmt::format("could not read {}", fragment().name)), why->may_pass};
      stream_.reset();
      return {};
    }
    if (!chunk) {
      failure = Failure{base::error("{} ends after {}, but {} were counted: if it has changed, recreate the dataset",
                                    fragment().name, base::count_of(stream_row_, "row"), fragment().rows)};
      return {};
    }
    const std::int64_t skip = std::clamp<std::int64_t>(piece_.row - stream_row_, 0, chunk->rows());
    const std::int64_t count = std::min(chunk->rows() - skip, piece_.count);
    stream_row_ += chunk->rows();
    if (count == 0) continue;
    Stretch stretch{std::move(chunk), skip, begin_, count, reading_.samples[piece_.fragment] + piece_.row};
    piece_.row += count;
    piece_.count -= count;
    begin_ += count;
    if (piece_.count == 0) {
      check_end(failure);
      stream_.reset();  // frees the decoder's memory; pieces before this one may take a while
    }
    if (failure) return {};
    return stretch;
  }
  return {};
}

}  // namespace trireme::data
