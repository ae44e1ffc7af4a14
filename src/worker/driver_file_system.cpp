#include "worker/driver_file_system.h"

#include <fcntl.h>
#include <unistd.h>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <cerrno>
#include <optional>
#include <stdexcept>

#include "base/fd.h"
#include "base/fields.h"
#include "base/hex.h"
#include "wire/client.h"
#include "wire/secret.h"

namespace trireme::worker {
namespace {

constexpr std::int64_t kBlock = std::int64_t{4} << 20;
// Enough to hide the latency of the driver's disk; every worker of the run may have as many.
constexpr std::size_t kMostConnections = 4;
constexpr auto kJoinTime = std::chrono::seconds(30);

[[noreturn]] void fail(const base::Error& error) { throw std::runtime_error(error.message()); }

[[noreturn]] void fail_with_errno(const std::string& doing, const std::string& path) {
  fail(base::system_error(doing + " " + path, errno));
}

template <typename T>
T value_as(const Value& value) {
  auto converted = base::Codec<T>::from(value);
  if (!converted) fail(std::move(converted).error().wrap("the driver's answer"));
  return *std::move(converted);
}

struct ProcessWide {
  std::mutex mutex;
  std::shared_ptr<DriverFileSystem> files;
};

// Never destroyed: threads of a process that exits may still use it.
ProcessWide& process_wide() {
  static ProcessWide* const made = new ProcessWide;
  return *made;
}

}  // namespace

// One request at a time, on the thread of the caller.
class DriverFileSystem::Connection {
 public:
  static base::Result<std::unique_ptr<Connection>> open(const Peer& peer) {
    std::unique_ptr<Connection> made(new Connection);
    std::optional<base::Result<wire::Joined>> joined;
    auto join_once = [&]() -> asio::awaitable<void> {
      joined = co_await wire::join(made->io_, peer.address, peer.secret, peer.hello);
    };
    asio::co_spawn(made->io_, join_once(), asio::detached);
    made->io_.run_for(kJoinTime);
    if (!joined) return base::error("no answer from {} within {} s", peer.address.text(), kJoinTime.count());
    if (!*joined) return std::move(*joined).error();
    made->channel_ = (*joined)->channel;
    return made;
  }
  ~Connection() {
    if (channel_) channel_->close();
  }

  // An error of the connection, which is then unusable, or the driver's answer.
  base::Result<wire::Reply> ask(wire::FileRequest request) {
    request.id = ++asked_;
    const wire::Message message = std::move(request);
    std::optional<base::Result<wire::Reply>> answer;
    auto exchange = [&]() -> asio::awaitable<void> {
      channel_->send(message);
      while (!answer) {
        auto received = co_await channel_->read_message();
        if (!received) {
          answer = std::move(received).error();
        } else if (auto* reply = std::get_if<wire::Reply>(&*received); reply && reply->id == asked_) {
          answer = std::move(*reply);
        }
      }
    };
    asio::co_spawn(io_, exchange(), asio::detached);
    io_.restart();
    io_.run();
    return *std::move(answer);
  }

 private:
  Connection() = default;

  asio::io_context io_{1};
  std::shared_ptr<wire::Channel> channel_;
  std::int64_t asked_ = 0;
};

DriverFileSystem::DriverFileSystem(Peer peer)
    : peer_(std::move(peer)), process_(::getpid()), attempt_(peer_.hello.attempt) {}

DriverFileSystem::~DriverFileSystem() = default;

std::unique_ptr<DriverFileSystem::Connection> DriverFileSystem::take() {
  if (process_ != ::getpid()) {
    throw std::runtime_error("a process that was forked from the worker has no access to the run's storage");
  }
  std::unique_lock lock(mutex_);
  freed_.wait(lock, [&] { return in_use_ < kMostConnections; });
  ++in_use_;
  if (idle_.empty()) return nullptr;
  auto connection = std::move(idle_.back());
  idle_.pop_back();
  return connection;
}

void DriverFileSystem::give_back(std::unique_ptr<Connection> connection) {
  std::lock_guard lock(mutex_);
  --in_use_;
  if (connection) idle_.push_back(std::move(connection));
  freed_.notify_one();
}

Value DriverFileSystem::call(const char* name, const std::string& path, wire::FileRequest request) {
  request.call = name;
  request.path = path;
  request.attempt = attempt_;
  auto connection = take();
  if (!connection) {
    auto opened = Connection::open(peer_);
    if (!opened) {
      give_back(nullptr);
      fail(opened.error());
    }
    connection = *std::move(opened);
  }
  auto reply = connection->ask(std::move(request));
  give_back(reply ? std::move(connection) : nullptr);
  if (!reply) fail(std::move(reply).error().wrap("lost the connection to the driver's storage"));
  if (reply->failure) throw std::runtime_error(*reply->failure);
  return std::move(reply->value);
}

bool DriverFileSystem::exists(const std::string& path) { return value_as<bool>(call("exists", path)); }

std::string DriverFileSystem::read(const std::string& path) {
  std::string content;
  while (true) {
    wire::FileRequest request;
    request.offset = static_cast<std::int64_t>(content.size());
    request.size = kBlock;
    const auto block = value_as<Bytes>(call("fetch", path, std::move(request)));
    content += block.data;
    if (static_cast<std::int64_t>(block.data.size()) < kBlock) return content;
  }
}

void DriverFileSystem::write(const std::string& path, std::string_view content) {
  wire::FileRequest request;
  request.content = Bytes{std::string(content)};
  call("write", path, std::move(request));
}

void DriverFileSystem::upload(const std::string& local_file, const std::string& path) {
  const base::Fd file(::open(local_file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) fail_with_errno("open", local_file);
  const std::string name = base::to_hex(wire::random_bytes(16));
  std::int64_t sent = 0;
  while (true) {
    wire::FileRequest request;
    request.name = name;
    request.offset = sent;
    request.content.data.resize(kBlock);
    const ssize_t count = ::read(file.get(), request.content.data.data(), kBlock);
    if (count < 0) fail_with_errno("read", local_file);
    if (count == 0 && sent > 0) break;
    request.content.data.resize(static_cast<std::size_t>(count));
    sent += count;
    call("append", path, std::move(request));
    if (count == 0) break;  // an empty file
  }
  wire::FileRequest request;
  request.name = name;
  request.size = sent;
  call("place", path, std::move(request));
}

void DriverFileSystem::download(const std::string& path, const std::string& local_file) {
  const base::Fd file(::open(local_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.valid()) fail_with_errno("create", local_file);
  for (std::int64_t got = 0;;) {
    wire::FileRequest request;
    request.offset = got;
    request.size = kBlock;
    const auto block = value_as<Bytes>(call("fetch", path, std::move(request)));
    const std::string& data = block.data;
    for (std::size_t done = 0; done < data.size();) {
      const ssize_t count = ::write(file.get(), data.data() + done, data.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail_with_errno("write", local_file);
      done += static_cast<std::size_t>(count);
    }
    got += static_cast<std::int64_t>(data.size());
    if (static_cast<std::int64_t>(data.size()) < kBlock) return;
  }
}

std::vector<StoredFile> DriverFileSystem::list_files(const std::string& folder) {
  const Value listed = call("list_files", folder);
  std::vector<StoredFile> files;
  for (const auto& [path, size] : value_as<std::map<std::string, std::int64_t>>(listed)) {
    files.push_back({path, static_cast<std::uint64_t>(size)});
  }
  return files;
}

std::vector<std::string> DriverFileSystem::list_folders(const std::string& folder) {
  return value_as<std::vector<std::string>>(call("list_folders", folder));
}

void DriverFileSystem::make_folder(const std::string& path) { call("make_folder", path); }
void DriverFileSystem::remove_file(const std::string& path) { call("remove_file", path); }
void DriverFileSystem::remove_folder(const std::string& path) { call("remove_folder", path); }

std::shared_ptr<DriverFileSystem> driver_file_system() {
  std::lock_guard lock(process_wide().mutex);
  return process_wide().files;
}

void set_driver_file_system(std::shared_ptr<DriverFileSystem> files) {
  register_filesystem(DriverFileSystem::kScheme, [files](const std::string&) { return files; });
  std::lock_guard lock(process_wide().mutex);
  process_wide().files = std::move(files);
}

}  // namespace trireme::worker
