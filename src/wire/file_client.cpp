#include "wire/file_client.h"

#include <unistd.h>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <optional>

#include "base/clock.h"
#include "wire/client.h"

namespace trireme::wire {
namespace {

// Enough to hide the latency of a disk; every worker of a run may have as many.
constexpr std::size_t kMostConnections = 4;
constexpr std::chrono::milliseconds kJoinTime = std::chrono::seconds(30);
constexpr std::chrono::milliseconds kSlice{250};

}  // namespace

// One request at a time, on the thread of the caller.
class FileClient::Connection {
 public:
  static base::Result<std::unique_ptr<Connection>> open(const Peer& peer) {
    const auto limit = peer.patience.count() > 0 ? peer.patience : kJoinTime;
    std::unique_ptr<Connection> made(new Connection(peer));
    std::optional<base::Result<Joined>> joined;
    auto join_once = [&]() -> asio::awaitable<void> {
      joined = co_await join(made->io_, peer.address, peer.secret, peer.hello);
    };
    asio::co_spawn(made->io_, join_once(), asio::detached);
    const auto until = std::chrono::steady_clock::now() + limit;
    while (!joined && std::chrono::steady_clock::now() < until && !(peer.gone && peer.gone())) {
      made->io_.run_for(kSlice);
      made->io_.restart();
    }
    if (!joined) {
      return base::error("no answer from {} within {:.0f} s", peer.address.text(), base::Seconds(limit).count());
    }
    if (!*joined) return std::move(*joined).error();
    made->channel_ = (*joined)->channel;
    return made;
  }
  ~Connection() {
    if (channel_) channel_->close();
  }

  // An error of the connection, which is then unusable, or the answer.
  base::Result<Reply> ask(FileRequest request) {
    request.id = ++asked_;
    channel_->send(std::move(request));
    answer_.reset();
    asio::co_spawn(io_, read_answer(), asio::detached);
    io_.restart();
    if (patience_.count() == 0) io_.run();
    const auto until = std::chrono::steady_clock::now() + patience_;
    while (!answer_ && std::chrono::steady_clock::now() < until) {
      if (gone_ && gone_()) return base::error("it is no longer needed, or lost");
      io_.run_for(kSlice);
      io_.restart();
    }
    if (!answer_) return base::error("no answer within {:.0f} s", base::Seconds(patience_).count());
    return *std::move(answer_);
  }

 private:
  explicit Connection(const Peer& peer) : patience_(peer.patience), gone_(peer.gone) {}

  asio::awaitable<void> read_answer() {
    while (!answer_) {
      auto received = co_await channel_->read_message();
      if (!received) {
        answer_ = std::move(received).error();
      } else if (auto* reply = std::get_if<Reply>(&*received); reply && reply->id == asked_) {
        answer_ = std::move(*reply);
      }
    }
  }

  const std::chrono::milliseconds patience_;
  const std::function<bool()> gone_;
  asio::io_context io_{1};
  std::shared_ptr<SocketChannel> channel_;
  std::int64_t asked_ = 0;
  std::optional<base::Result<Reply>> answer_;
};

FileClient::FileClient(Peer peer) : peer_(std::move(peer)), process_(::getpid()) {}

FileClient::~FileClient() = default;

base::Result<std::unique_ptr<FileClient::Connection>> FileClient::take() {
  if (process_ != ::getpid()) {
    return base::error("a process that was forked from the worker has no access to {}", peer_.what);
  }
  {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [&] { return in_use_ < kMostConnections; });
    ++in_use_;
    if (!idle_.empty()) {
      auto connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
  }
  auto opened = Connection::open(peer_);
  if (!opened) give_back(nullptr);
  return opened;
}

void FileClient::give_back(std::unique_ptr<Connection> connection) {
  std::lock_guard lock(mutex_);
  --in_use_;
  if (connection) idle_.push_back(std::move(connection));
  freed_.notify_one();
}

base::Result<Value> FileClient::call(FileRequest request) {
  TRIREME_ASSIGN(auto connection, take());
  auto reply = connection->ask(std::move(request));
  give_back(reply ? std::move(connection) : nullptr);
  if (!reply) return std::move(reply).error().wrap(fmt::format("lost the connection to {}", peer_.what));
  if (reply->failure) return base::Error(*std::move(reply->failure));
  return std::move(reply->value);
}

}  // namespace trireme::wire
