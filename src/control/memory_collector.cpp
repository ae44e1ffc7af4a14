#include "control/memory_collector.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>

#include "base/dict_fields.h"
#include "base/fd.h"
#include "base/fields.h"
#include "base/log.h"
#include "storage/digest.h"
#include "storage/disk_error.h"
#include "storage/local_files.h"
#include "storage/paths.h"
#include "wire/file_requests.h"

namespace trireme::control {
namespace {

using base::Result;
namespace fs = std::filesystem;

constexpr std::size_t kMaxCopies = std::size_t{1} << 20;
constexpr std::int64_t kBlock = std::int64_t{2} << 20;
// A slow link needs seconds for a block. An agent that is cut off is declared lost earlier.
constexpr std::chrono::seconds kPatience{60};
// The agents of one cluster are behind the same firewall.
constexpr std::size_t kProbes = 3;
constexpr std::chrono::seconds kProbePatience{3};
constexpr const char* kCollected = ".trireme_collected";
// A copy is repeated if a node is lost meanwhile: the others hold all files, and copy them again.
constexpr int kTries = 3;
constexpr int kPauses = 10;  // between two tries
constexpr std::chrono::milliseconds kPause{100};

Result<void> write_block(const base::Fd& file, const std::string& path, const std::string& data) {
  for (std::size_t done = 0; done < data.size();) {
    const ssize_t count = ::write(file.get(), data.data() + done, data.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return storage::failed("write", path, errno);
    done += static_cast<std::size_t>(count);
  }
  return {};
}

}  // namespace

MemoryCollector::MemoryCollector(std::string run_id, std::string scratch, Access access)
    : run_id_(std::move(run_id)), scratch_(scratch + "/" + kCollected), access_(std::move(access)), jobs_(kMaxCopies) {
  thread_ = std::jthread([this] {
    while (auto job = jobs_.pop()) (*job)();
  });
}

MemoryCollector::~MemoryCollector() {
  stopping_ = true;
  jobs_.close();
  thread_.join();
  stopping_ = false;
  drop_now(std::numeric_limits<std::int64_t>::max());
  if (auto removed = storage::remove_folder(scratch_); !removed) base::log_warning("{}", removed.error().message());
}

wire::FileClient::Peer MemoryCollector::peer(const engine::NodeMemory& access, wire::Address address) const {
  auto gone = [this, text = address.text()] {
    const auto now = access_();
    return stopping_ || std::find(now.addresses.begin(), now.addresses.end(), text) == now.addresses.end();
  };
  wire::FileClient::Peer made{.what = "an agent at " + address.host,
                              .address = std::move(address),
                              .secret = access.secret,
                              .hello = {},
                              .patience = kPatience,
                              .gone = std::move(gone)};
  made.hello.run_id = access.id;
  made.hello.role = "memory";
  made.hello.pid = ::getpid();
  return made;
}

Result<void> MemoryCollector::reachable() {
  const auto access = access_();
  for (std::size_t i = 0; i < std::min(access.addresses.size(), kProbes); ++i) {
    const std::string& text = access.addresses[i];
    {
      const std::lock_guard lock(mutex_);
      if (reached_.contains(text)) continue;
    }
    TRIREME_ASSIGN(auto address, wire::parse_address(text));
    auto probed = peer(access, std::move(address));
    probed.patience = kProbePatience;
    wire::FileRequest request;
    request.call = "list_files";
    request.path = wire::memory_path(run_id_, 0);
    TRIREME_TRY(wire::FileClient(std::move(probed)).call(std::move(request)));
    const std::lock_guard lock(mutex_);
    reached_.insert(text);
  }
  return {};
}

MemoryCollector::Clients MemoryCollector::clients() {
  const auto access = access_();
  const std::lock_guard lock(mutex_);
  Clients now;
  for (const auto& text : access.addresses) {
    if (const auto known = clients_.find(text); known != clients_.end()) {
      now.insert(*known);
      continue;
    }
    auto address = wire::parse_address(text);
    if (!address) continue;
    now[text] = std::make_shared<wire::FileClient>(peer(access, *std::move(address)));
  }
  clients_ = now;
  return now;
}

Result<std::map<std::string, std::vector<std::string>>> MemoryCollector::holders(const Checkpoint& wanted) {
  std::map<std::string, std::vector<std::string>> found;
  for (const auto& [address, agent] : clients()) {
    wire::FileRequest request;
    request.call = "list_files";
    request.path = wire::memory_path(run_id_, wanted.origin.index);
    const auto answer = agent->call(std::move(request));
    if (!answer) continue;  // it is lost; others may hold the files
    TRIREME_ASSIGN(const auto held, wire::memory_listing_from(*answer), "the agent at {}", address);
    if (held.attempt != wanted.origin.attempt) continue;
    for (const auto& file : wanted.files) {
      const auto size = held.sizes.find(file.path);
      if (size == held.sizes.end() || size->second != static_cast<std::int64_t>(file.size)) continue;
      auto& addresses = found[file.path];
      if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) addresses.push_back(address);
    }
  }
  for (const auto& file : wanted.files) {
    if (!found.contains(file.path)) return base::error("no node that is left holds its file {}", file.path);
  }
  return found;
}

Result<void> MemoryCollector::available(const Checkpoint& wanted) {
  TRIREME_TRY(holders(wanted));
  return {};
}

void MemoryCollector::collect(Checkpoint wanted, Collected done) {
  jobs_.push([this, wanted = std::move(wanted), done = std::move(done)] {
    if (stopping_ || forgotten(wanted.origin)) return;
    const std::string folder = fmt::format("{}/{}", scratch_, wanted.origin.index);
    Result<void> copied;
    for (int tries = 0; tries < kTries; ++tries) {
      copied = copy(wanted, folder);
      for (int pause = 0; !copied && !stopping_ && tries + 1 < kTries && pause < kPauses; ++pause) {
        std::this_thread::sleep_for(kPause);
      }
      if (copied || stopping_ || forgotten(wanted.origin)) break;
    }
    if (stopping_ || forgotten(wanted.origin)) {
      if (auto removed = storage::remove_folder(folder); !removed) {
        base::log_warning("{}", removed.error().message());
      }
      return;
    }
    if (!copied) return done(std::move(copied).error());
    done(folder);
  });
}

void MemoryCollector::forget(checkpoint::Origin origin) {
  const std::lock_guard lock(mutex_);
  forgotten_.insert(origin);
}

bool MemoryCollector::forgotten(checkpoint::Origin origin) const {
  const std::lock_guard lock(mutex_);
  return forgotten_.contains(origin);
}

void MemoryCollector::drop_below(std::int64_t index) {
  keep_from_ = index;
  jobs_.push([this] { drop_now(keep_from_); });
}

void MemoryCollector::drop_now(std::int64_t index) {
  for (const auto& [address, agent] : clients()) {
    wire::FileRequest request;
    request.call = "drop";
    request.path = wire::memory_path(run_id_, 0);
    request.offset = index;
    // If it fails, the agent is lost, or a later call frees these as well.
    if (auto dropped = agent->call(std::move(request)); !dropped) base::log_debug("{}", dropped.error().message());
  }
}

Result<void> MemoryCollector::copy(const Checkpoint& wanted, const std::string& folder) {
  TRIREME_ASSIGN(const auto found, holders(wanted));
  TRIREME_TRY(storage::remove_folder(folder));
  TRIREME_TRY(storage::make_folder(folder));
  for (const auto& [path, addresses] : found) {
    TRIREME_TRY(storage::check_relative(path));
    const std::string target = folder + "/" + path;
    TRIREME_TRY(storage::make_folder(fs::path(target).parent_path()));
    TRIREME_TRY(copy_file(wanted, path, addresses, target));
  }
  return {};
}

Result<void> MemoryCollector::copy_file(const Checkpoint& wanted, const std::string& path,
                                        const std::vector<std::string>& addresses, const std::string& target) {
  const auto agents = clients();
  Result<void> copied = base::error("no node that is left holds its file {}", path);
  for (const auto& address : addresses) {
    const auto agent = agents.find(address);
    if (agent == agents.end()) continue;
    copied = copy_from(*agent->second, wanted, path, target);
    if (copied) return copied;
  }
  return copied;
}

Result<void> MemoryCollector::copy_from(wire::FileClient& agent, const Checkpoint& wanted, const std::string& path,
                                        const std::string& target) {
  const base::Fd file(::open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.valid()) return storage::failed("create", target, errno);
  storage::Digest digest;
  std::int64_t got = 0;
  while (true) {
    if (stopping_ || forgotten(wanted.origin)) return base::error("it is no longer needed");
    wire::FileRequest request;
    request.call = "fetch";
    request.path = wire::memory_path(run_id_, wanted.origin.index, path);
    request.offset = got;
    request.size = kBlock;
    TRIREME_ASSIGN(const auto answer, agent.call(std::move(request)));
    const auto* block = answer.get_if<Bytes>();
    if (!block) return base::error("its file {} is no longer held", path);
    TRIREME_TRY(write_block(file, target, block->data));
    digest.add(block->data);
    got += static_cast<std::int64_t>(block->data.size());
    if (static_cast<std::int64_t>(block->data.size()) < kBlock) break;
  }
  const std::string found = digest.hex();
  const bool expected = std::any_of(wanted.files.begin(), wanted.files.end(),
                                    [&](const auto& record) { return record.path == path && record.xxh3 == found; });
  if (!expected) return base::error("its file {} arrived with XXH3 {}, which no rank has stored", path, found);
  return {};
}

}  // namespace trireme::control
