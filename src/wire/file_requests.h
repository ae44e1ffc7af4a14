#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/result.h"
#include "wire/message.h"

// What the clients and servers of FileRequests share. Requests to the memory of agents name a file of a checkpoint as
// RUN/INDEX/FILE, with the number of its report.

namespace trireme::wire {

Reply reply_to(std::int64_t request, base::Result<Value> answer);

// Without a file: the checkpoint.
std::string memory_path(const std::string& run, std::int64_t index, const std::string& file = "");

// The answer to list_files of an agent: the files that it holds of a checkpoint.
struct MemoryListing {
  int attempt = 0;
  std::map<std::string, std::int64_t> sizes = {};
};
Value to_value(const MemoryListing& listing);
base::Result<MemoryListing> memory_listing_from(const Value& answer);

}  // namespace trireme::wire
