#include "wire/file_requests.h"

#include <fmt/format.h>

#include "base/dict_fields.h"
#include "base/fields.h"

namespace trireme::wire {
namespace {

using Sizes = base::Codec<std::map<std::string, std::int64_t>>;

}  // namespace

Reply reply_to(std::int64_t request, base::Result<Value> answer) {
  Reply reply;
  reply.id = request;
  if (answer) {
    reply.value = *std::move(answer);
  } else {
    reply.failure = answer.error().message();
  }
  return reply;
}

std::string memory_path(const std::string& run, std::int64_t index, const std::string& file) {
  return fmt::format("{}/{}/{}", run, index, file);
}

Value to_value(const MemoryListing& listing) {
  return Dict{{"attempt", listing.attempt}, {"files", Sizes::to(listing.sizes)}};
}

base::Result<MemoryListing> memory_listing_from(const Value& answer) {
  const auto* dict = answer.get_if<Dict>();
  const auto* files = dict ? dict->find("files") : nullptr;
  if (!files) return base::error("the answer has no files");
  MemoryListing listing;
  listing.attempt = static_cast<int>(base::int_of(*dict, "attempt"));
  TRIREME_ASSIGN(listing.sizes, Sizes::from(*files));
  return listing;
}

}  // namespace trireme::wire
