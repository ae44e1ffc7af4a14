#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"
#include "data/chunk.h"
#include "data/source.h"

namespace trireme::data {

// The schema that all fragments of a dataset must have: that of the first one opened.
class CommonSchema {
 public:
  // One shared object, so that chunks can be compared by pointer.
  base::Result<std::shared_ptr<const Schema>> agree(std::shared_ptr<const Schema> schema);

 private:
  std::mutex mutex_;
  std::shared_ptr<const Schema> first_;
};

// The chunks of a stream, in order.
class Stream {
 public:
  Stream(OwnedStream stream, CommonSchema& common) : stream_(std::move(stream)), common_(common) {}

  struct Failure {
    base::Error error;
    bool may_pass = false;  // EIO: a retry may help
  };
  // nullptr at the end.
  std::shared_ptr<const Chunk> next(std::optional<Failure>& failure);

 private:
  std::string told(int code);
  bool open(std::optional<Failure>& failure);

  OwnedStream stream_;
  CommonSchema& common_;
  std::shared_ptr<const Schema> schema_;
};

}  // namespace trireme::data
