#include "worker/node_memory.h"

#include <algorithm>
#include <charconv>

#include "base/dict_fields.h"
#include "base/fields.h"
#include "checkpoint/commit.h"
#include "storage/parallel.h"
#include "wire/file_requests.h"

namespace trireme::worker {
namespace {

// The agent copies a file while it sends the one before it to the other node.
constexpr std::size_t kFilesAtATime = 2;

}  // namespace

NodeMemory::NodeMemory(wire::FileClient::Peer agent, Place place)
    : place_(std::move(place)), agent_(std::move(agent)) {}

base::Result<NodeMemory::Held> NodeMemory::hold(std::int64_t index, int attempt,
                                                const std::map<std::string, std::string>& files) {
  const std::vector<std::pair<std::string, std::string>> wanted(files.begin(), files.end());
  Held held;
  held.files.resize(wanted.size());
  std::vector<int> nodes(wanted.size());
  TRIREME_TRY(storage::in_parallel(wanted.size(), kFilesAtATime, [&](std::size_t i) -> base::Result<void> {
    wire::FileRequest request;
    request.call = "take";
    request.attempt = attempt;
    request.path = wire::memory_path(place_.run_id, index, wanted[i].first);
    request.name = wanted[i].second;
    request.limit = place_.limit;
    TRIREME_ASSIGN(const auto answer, agent_.call(std::move(request)));
    const auto* dict = answer.get_if<Dict>();
    if (!dict) return base::error("the agent's answer is not an object");
    held.files[i] = {wanted[i].first, static_cast<std::uint64_t>(base::int_of(*dict, "size")),
                     base::text_of(*dict, "xxh3")};
    nodes[i] = static_cast<int>(base::int_of(*dict, "nodes"));
    return {};
  }));
  if (!nodes.empty()) held.nodes = *std::min_element(nodes.begin(), nodes.end());
  return held;
}

std::optional<NodeMemory::Name> NodeMemory::name_of(const std::string& path) const {
  const std::string folder = place_.storage_path + "/";
  if (!path.starts_with(folder)) return std::nullopt;
  const std::string inside = path.substr(folder.size());
  const std::string checkpoint = inside.substr(0, inside.find('/'));
  const auto digits = checkpoint.find_last_not_of("0123456789") + 1;
  Name name{};
  const auto parsed = std::from_chars(checkpoint.data() + digits, checkpoint.data() + checkpoint.size(), name.index);
  if (parsed.ec != std::errc() || checkpoint::default_name(name.index) != checkpoint) return std::nullopt;
  if (inside.size() > checkpoint.size()) name.file = inside.substr(checkpoint.size() + 1);
  return name;
}

base::Result<std::map<std::string, std::int64_t>> NodeMemory::list(const std::string& path) {
  std::map<std::string, std::int64_t> sizes;
  const auto name = name_of(path);
  if (!name) return sizes;
  wire::FileRequest request;
  request.call = "list_files";
  request.path = wire::memory_path(place_.run_id, name->index);
  TRIREME_ASSIGN(const auto answer, agent_.call(std::move(request)));
  TRIREME_ASSIGN(auto held, wire::memory_listing_from(answer), "the agent's memory");
  if (name->file.empty()) return std::move(held.sizes);
  for (const auto& [file, size] : held.sizes) {
    if (file == name->file) sizes[""] = size;
    if (file.starts_with(name->file + "/")) sizes[file.substr(name->file.size() + 1)] = size;
  }
  return sizes;
}

base::Result<std::optional<std::string>> NodeMemory::fetch(const std::string& path, std::int64_t offset,
                                                           std::int64_t size) {
  const auto name = name_of(path);
  if (!name || name->file.empty()) return std::optional<std::string>();
  wire::FileRequest request;
  request.call = "fetch";
  request.path = wire::memory_path(place_.run_id, name->index, name->file);
  request.offset = offset;
  request.size = size;
  TRIREME_ASSIGN(auto answer, agent_.call(std::move(request)));
  auto* block = answer.get_if<Bytes>();
  if (!block) return std::optional<std::string>();
  return std::optional(std::move(block->data));
}

}  // namespace trireme::worker
