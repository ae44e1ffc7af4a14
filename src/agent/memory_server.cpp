#include "agent/memory_server.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <asio/executor_work_guard.hpp>
#include <asio/post.hpp>
#include <cerrno>
#include <cstdlib>

#include "base/dict_fields.h"
#include "base/fd.h"
#include "base/fields.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/signals.h"
#include "storage/digest.h"
#include "wire/secret.h"

namespace trireme::agent {
namespace {

using base::Result;

constexpr std::size_t kWorkerThreads = 4;
constexpr std::size_t kPeerThreads = 4;
constexpr std::int64_t kBlock = std::int64_t{4} << 20;
constexpr std::int64_t kLargestBlock = std::int64_t{64} << 20;
// A peer that is cut off must not hold up a checkpoint for longer than its agent takes to be declared lost.
constexpr std::chrono::seconds kPeerPatience{5};
// The driver sends the list of agents when none has joined for a moment.
constexpr std::chrono::seconds kAgentsPatience{3};

Result<Value> block_of(const CheckpointMemory::Content& content, const wire::FileRequest& request) {
  if (request.offset < 0 || request.size < 0 || request.size > kLargestBlock) return base::error("invalid range");
  const auto offset = std::min(static_cast<std::size_t>(request.offset), content->size());
  return Value(Bytes{content->substr(offset, static_cast<std::size_t>(request.size))});
}

// Reads the whole file and returns its checksum.
Result<std::string> read_all(const base::Fd& file, std::string& content, const std::string& path) {
  storage::Digest digest;
  for (std::size_t got = 0; got < content.size();) {
    const std::size_t wanted = std::min(content.size() - got, std::size_t{1} << 20);  // still cached when it is hashed
    const ssize_t count = ::pread(file.get(), content.data() + got, wanted, static_cast<off_t>(got));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return base::system_error("read " + path, errno);
    if (count == 0) return base::error("{} became shorter while it was read; write all files before report()", path);
    digest.add({content.data() + got, static_cast<std::size_t>(count)});
    got += static_cast<std::size_t>(count);
  }
  return digest.hex();
}

}  // namespace

Result<wire::Welcome> MemoryServer::Entrance::admit(const wire::Hello& hello) {
  if (hello.role != role) return base::error("it is not a {}", role);
  return wire::Welcome{};
}

void MemoryServer::Entrance::received(const std::shared_ptr<wire::Channel>& channel, wire::Message message) {
  auto* request = std::get_if<wire::FileRequest>(&message);
  if (!request) return channel->close();
  asio::post(calls, [this, channel, sender = channel->peer().rank, request = std::move(*request)] {
    const bool worker = this == &memory.for_workers_;
    auto answer = worker ? memory.serve_worker(request) : memory.serve_peer(request, sender);
    auto reply = wire::reply_to(request.id, std::move(answer));
    asio::post(memory.io_, [channel, reply = std::move(reply)] { channel->send(reply); });
  });
}

Result<std::unique_ptr<MemoryServer>> MemoryServer::start(Options options) {
  std::unique_ptr<MemoryServer> made(new MemoryServer(std::move(options)));
  wire::Address here;
  here.kind = wire::Address::Kind::kUnix;
  here.name = "trireme-memory-" + base::to_hex(wire::random_bytes(16));
  TRIREME_ASSIGN(made->for_workers_.server,
                 wire::Server::listen(made->io_, here, made->worker_secret_, made->for_workers_));
  TRIREME_ASSIGN(made->for_peers_.server,
                 wire::Server::listen(made->io_, made->options_.listen, made->options_.secret, made->for_peers_));
  made->thread_ = std::jthread([&io = made->io_] {
    base::block_signals();
    auto work = asio::make_work_guard(io);
    // The top of this thread. Workers then store their checkpoints on the driver's machine.
    try {
      io.run();
    } catch (const std::exception& problem) {
      base::log_error("the memory for checkpoints failed: {}", problem.what());
    }
  });
  return made;
}

MemoryServer::MemoryServer(Options options)
    : options_(std::move(options)),
      worker_secret_(wire::random_bytes(wire::kSecretSize)),
      for_workers_(*this, "storage", kWorkerThreads),
      for_peers_(*this, "memory", kPeerThreads) {}

MemoryServer::~MemoryServer() {
  asio::post(io_, [this] {
    for (auto* entrance : {&for_workers_, &for_peers_}) {
      if (entrance->server) entrance->server->close();
    }
    io_.stop();
  });
  if (thread_.joinable()) thread_.join();
  for_workers_.calls.join();
  for_peers_.calls.join();
}

MemoryServer::Peers MemoryServer::peers() {
  const std::lock_guard lock(mutex_);
  return peers_;
}

void MemoryServer::set_agents(const wire::Variables& addresses) {
  const Peers before = peers();
  Peers now;
  for (const auto& [text, where] : addresses) {
    const int number = std::atoi(text.c_str());
    if (number == options_.agent) continue;
    if (const auto known = before.find(number); known != before.end()) {
      now[number] = known->second;
      continue;
    }
    auto address = wire::parse_address(where);
    if (!address) continue;  // it has no memory for checkpoints
    wire::FileClient::Peer peer{.what = fmt::format("agent {}", number),
                                .address = *std::move(address),
                                .secret = options_.secret,
                                .hello = {},
                                .patience = kPeerPatience};
    peer.hello.run_id = options_.engine;
    peer.hello.role = "memory";
    peer.hello.rank = options_.agent;
    peer.hello.pid = ::getpid();
    now[number] = std::make_shared<wire::FileClient>(std::move(peer));
  }
  {
    const std::lock_guard lock(mutex_);
    peers_ = std::move(now);
    knows_agents_ = true;
    told_.notify_all();
    holders_.clear();
    std::erase_if(uploads_, [&](const auto& each) { return !peers_.contains(each.second.sender); });
  }
  asio::post(for_workers_.calls, [this] { copy_again(); });
}

Result<Value> MemoryServer::serve_worker(const wire::FileRequest& request) {
  if (request.call == "take") return take(request);
  if (request.call == "fetch") return fetch_from_peers(request);
  if (request.call == "list_files") return list_everywhere(request);
  return base::error("unknown call '{}'", request.call);
}

Result<Value> MemoryServer::serve_peer(const wire::FileRequest& request, int sender) {
  if (request.call == "put") return put(request, sender);
  TRIREME_ASSIGN(const auto name, CheckpointMemory::Name::parse(request.path));
  if (request.call == "fetch") {
    const auto content = memory_.find(name);
    return content ? block_of(content, request) : Value();
  }
  if (request.call == "list_files") return wire::to_value(memory_.list(name.run, name.index));
  if (request.call == "drop") {
    memory_.drop(name.run, request.offset);
    return Value();
  }
  return base::error("unknown call '{}'", request.call);
}

Result<Value> MemoryServer::take(const wire::FileRequest& request) {
  TRIREME_ASSIGN(auto name, CheckpointMemory::Name::parse(request.path));
  const base::Fd file(::open(request.name.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0) return base::system_error("open " + request.name, errno);
  TRIREME_ASSIGN(auto content, memory_.make_room(info.st_size, request.limit));
  TRIREME_ASSIGN(const auto digest, read_all(file, *content, request.name));
  {
    const std::lock_guard lock(mutex_);
    limit_ = request.limit;
  }
  CheckpointMemory::Held held{std::move(name), request.attempt, std::move(content), 0};
  TRIREME_TRY(memory_.add(held));
  const int other = copy_to_peer(held, request.limit);
  memory_.set_other(held.name, held.attempt, other);
  return Value(
      Dict{{"size", static_cast<std::int64_t>(held.content->size())}, {"xxh3", digest}, {"nodes", other == 0 ? 1 : 2}});
}

int MemoryServer::copy_to_peer(const CheckpointMemory::Held& file, std::int64_t limit) {
  {
    // This node's workers may be the first of all.
    std::unique_lock lock(mutex_);
    told_.wait_for(lock, kAgentsPatience, [&] { return knows_agents_; });
  }
  const auto known = peers();
  std::set<int> numbers;
  for (const auto& [number, peer] : known) numbers.insert(number);
  for (const int target : copy_targets(options_.agent, numbers)) {
    const auto sent = send(*known.at(target), file, limit);
    if (sent) return target;
    base::log_debug("{} was not copied to agent {}: {}", file.name.text(), target, sent.error().message());
  }
  return 0;
}

Result<void> MemoryServer::send(wire::FileClient& peer, const CheckpointMemory::Held& file, std::int64_t limit) const {
  const std::string& content = *file.content;
  const std::string upload = base::to_hex(wire::random_bytes(16));
  std::size_t sent = 0;
  do {
    wire::FileRequest request;
    request.call = "put";
    request.attempt = file.attempt;
    request.path = file.name.text();
    request.name = upload;
    request.offset = static_cast<std::int64_t>(sent);
    request.size = static_cast<std::int64_t>(content.size());
    request.content.data = content.substr(sent, kBlock);
    request.limit = limit;
    sent += request.content.data.size();
    TRIREME_TRY(peer.call(std::move(request)));
  } while (sent < content.size());
  return {};
}

// Blocks arrive in order, on one connection.
Result<Value> MemoryServer::put(const wire::FileRequest& request, int sender) {
  TRIREME_ASSIGN(auto name, CheckpointMemory::Name::parse(request.path));
  CheckpointMemory::Content content;
  if (request.offset == 0) {
    TRIREME_ASSIGN(content, memory_.make_room(request.size, request.limit));
    const std::lock_guard lock(mutex_);
    uploads_[request.name] = {sender, content};
  } else {
    const std::lock_guard lock(mutex_);
    const auto upload = uploads_.find(request.name);
    if (upload == uploads_.end() || upload->second.sender != sender) return base::error("unknown upload");
    content = upload->second.content;
  }
  const std::string& block = request.content.data;
  const auto offset = static_cast<std::size_t>(request.offset);
  const bool fits = request.offset >= 0 && offset <= content->size() && block.size() <= content->size() - offset;
  if (fits) std::copy(block.begin(), block.end(), content->begin() + request.offset);
  const bool complete = fits && offset + block.size() == content->size();
  if (!fits || complete) {
    const std::lock_guard lock(mutex_);
    uploads_.erase(request.name);
  }
  if (!fits) return base::error("the block is outside of the file");
  if (complete) TRIREME_TRY(memory_.add({std::move(name), request.attempt, std::move(content), sender}));
  return Value();
}

void MemoryServer::copy_again() {
  std::set<int> numbers;
  for (const auto& [number, peer] : peers()) numbers.insert(number);
  if (numbers.empty()) return;
  std::int64_t limit = -1;
  {
    const std::lock_guard lock(mutex_);
    limit = limit_;
  }
  for (const auto& held : memory_.without_copy(numbers)) {
    memory_.set_other(held.name, held.attempt, copy_to_peer(held, limit));
  }
}

Result<Value> MemoryServer::fetch_from_peers(const wire::FileRequest& request) {
  TRIREME_ASSIGN(const auto name, CheckpointMemory::Name::parse(request.path));
  if (const auto content = memory_.find(name)) return block_of(content, request);
  const auto known = peers();
  std::vector<int> order;
  {
    const std::lock_guard lock(mutex_);
    if (const auto holder = holders_.find(request.path); holder != holders_.end()) order.push_back(holder->second);
  }
  for (const auto& [number, peer] : known) order.push_back(number);
  for (const int number : order) {
    const auto peer = known.find(number);
    if (peer == known.end()) continue;
    auto answer = peer->second->call(request);
    if (!answer || answer->is_null()) continue;
    const std::lock_guard lock(mutex_);
    holders_[request.path] = number;
    return answer;
  }
  return Value();
}

// The files of the newest attempt: an earlier one may have left files of ranks that no longer exist.
Result<Value> MemoryServer::list_everywhere(const wire::FileRequest& request) {
  TRIREME_ASSIGN(const auto name, CheckpointMemory::Name::parse(request.path));
  auto all = memory_.list(name.run, name.index);
  for (const auto& [number, peer] : peers()) {
    TRIREME_ASSIGN(const auto answer, peer->call(request));
    TRIREME_ASSIGN(auto held, wire::memory_listing_from(answer), "agent {}", number);
    if (held.sizes.empty() || held.attempt < all.attempt) continue;
    if (held.attempt > all.attempt) all = {held.attempt, {}};
    all.sizes.merge(held.sizes);
  }
  return wire::to_value(all);
}

}  // namespace trireme::agent
