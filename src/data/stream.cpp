#include "data/stream.h"

#include <cerrno>
#include <cstring>

namespace trireme::data {

base::Result<std::shared_ptr<const Schema>> CommonSchema::agree(std::shared_ptr<const Schema> schema) {
  std::lock_guard lock(mutex_);
  if (!first_) first_ = std::move(schema);
  if (schema) TRIREME_TRY(schema->check_same(*first_));
  return first_;
}

std::string Stream::told(int code) {
  const char* text = stream_->get_last_error(&*stream_);
  return text && *text ? std::string(text) : std::string(std::strerror(code));
}

bool Stream::open(std::optional<Failure>& failure) {
  if (schema_) return true;
  OwnedSchema schema;
  if (int code = stream_->get_schema(&*stream_, &*schema)) {
    failure = Failure{base::Error(told(code)), code == EIO};
    return false;
  }
  auto taken = Schema::take(std::move(schema));
  if (!taken) {
    failure = Failure{std::move(taken).error()};
    return false;
  }
  auto agreed = common_.agree(*std::move(taken));
  if (!agreed) {
    failure = Failure{std::move(agreed).error()};
    return false;
  }
  schema_ = *std::move(agreed);
  return true;
}

std::shared_ptr<const Chunk> Stream::next(std::optional<Failure>& failure) {
  if (!open(failure)) return nullptr;
  while (true) {
    OwnedArray array;
    if (int code = stream_->get_next(&*stream_, &*array)) {
      failure = Failure{base::Error(told(code)), code == EIO};
      return nullptr;
    }
    if (!array->release) return nullptr;
    auto chunk = Chunk::take(std::move(array), schema_);
    if (!chunk) {
      failure = Failure{std::move(chunk).error()};
      return nullptr;
    }
    if ((*chunk)->rows() > 0) return *std::move(chunk);
  }
}

}  // namespace trireme::data
