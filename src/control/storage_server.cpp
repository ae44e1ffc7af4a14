#include "control/storage_server.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <asio/executor_work_guard.hpp>
#include <asio/post.hpp>
#include <cerrno>
#include <filesystem>

#include "base/fd.h"
#include "base/fields.h"
#include "base/log.h"
#include "base/signals.h"
#include "checkpoint/commit.h"
#include "storage/code_tree.h"
#include "storage/disk_error.h"
#include "storage/paths.h"
#include "wire/file_requests.h"

namespace trireme::control {
namespace {

namespace fs = std::filesystem;
using base::Result;

constexpr std::size_t kDiskThreads = 4;
constexpr std::int64_t kLargestBlock = std::int64_t{64} << 20;
// Uploads in progress, by their names. Hidden, and on the file system of the checkpoints.
constexpr const char* kIncoming = ".trireme_incoming";
constexpr const char* kCode = ".trireme_code";

bool below(const std::string& path, const std::string& folder) { return path.starts_with(folder + "/"); }

Result<Value> nothing(Result<void> done) {
  if (!done) return std::move(done).error();
  return Value();
}

}  // namespace

Result<std::unique_ptr<StorageServer>> StorageServer::start(const wire::Address& listen, const std::string& secret,
                                                            Place place) {
  std::unique_ptr<StorageServer> made(new StorageServer(std::move(place)));
  TRIREME_TRY(made->remove_scratch());  // of a driver that was killed
  TRIREME_ASSIGN(made->server_, wire::Server::listen(made->io_, listen, secret, *made));
  made->thread_ = std::jthread([&io = made->io_] {
    base::block_signals();
    auto work = asio::make_work_guard(io);
    // The top of this thread, one of the places that catch exceptions. Uploads then fail, and so does the run.
    try {
      io.run();
    } catch (const std::exception& problem) {
      base::log_error("the storage for workers failed: {}", problem.what());
    }
  });
  return made;
}

StorageServer::StorageServer(Place place) : place_(std::move(place)), disk_(kDiskThreads) {}

StorageServer::~StorageServer() {
  asio::post(io_, [this] {
    if (server_) server_->close();
    io_.stop();
  });
  if (thread_.joinable()) thread_.join();
  disk_.join();
  if (auto removed = remove_scratch(); !removed) base::log_warning("{}", removed.error().message());
}

Result<void> StorageServer::remove_scratch() const {
  TRIREME_TRY(storage::remove_folder(place_.scratch + "/" + kIncoming));
  return storage::remove_folder(place_.scratch + "/" + kCode);
}

Result<wire::Welcome> StorageServer::admit(const wire::Hello& hello) {
  if (hello.run_id != place_.run_id || hello.role != "storage") return base::error("it does not belong to this run");
  return wire::Welcome{};
}

void StorageServer::refused(const std::string& from, const base::Error& why) {
  base::log_warning("the storage for workers refused a connection from {}: {}", from, why.message());
}

void StorageServer::received(const std::shared_ptr<wire::Channel>& channel, wire::Message message) {
  auto* request = std::get_if<wire::FileRequest>(&message);
  if (!request) return channel->close();
  asio::post(disk_, [this, channel, request = std::move(*request)] {
    auto reply = wire::reply_to(request.id, perform(request));
    asio::post(io_, [channel, reply = std::move(reply)] { channel->send(reply); });
  });
}

Result<void> StorageServer::check(const std::string& path, Use use) const {
  const auto& readable = place_.readable;
  if (use == Use::kRead && readable && (path == *readable || below(path, *readable))) {
    return path == *readable ? Result<void>() : storage::check_relative(path.substr(readable->size() + 1));
  }
  if (place_.folder.empty()) return base::error("{} is not in the run's storage", path);
  if (path == place_.folder) return {};
  if (!below(path, place_.folder)) return base::error("{} is not in the run's storage {}", path, place_.folder);
  const std::string inside = path.substr(place_.folder.size() + 1);
  TRIREME_TRY(storage::check_relative(inside));
  const std::string first = inside.substr(0, inside.find('/'));
  return first.starts_with(storage::kOwnPrefix) ? Result<void>() : checkpoint::check_name(first);
}

Result<Value> StorageServer::perform(const wire::FileRequest& request) {
  if (const int attempt = attempt_; request.attempt != attempt) {
    return base::error("attempt {} is over; the run is in attempt {}", request.attempt, attempt);
  }
  const std::string& call = request.call;
  const std::string& path = request.path;
  const bool reads = call == "exists" || call == "fetch" || call == "list_files" || call == "list_folders";
  if (call == "list_files" || call == "fetch") {
    TRIREME_ASSIGN(const auto code, copy_of_code(path));
    if (code && call == "fetch") return fetch(*code, request);
    if (code) {
      TRIREME_ASSIGN(const auto tree, storage::read_code(*code));
      return base::Codec<std::map<std::string, std::uint64_t>>::to(tree.files);
    }
  }
  TRIREME_TRY(check(path, reads ? Use::kRead : Use::kWrite));
  if (call == "exists") {
    TRIREME_ASSIGN(const bool there, files_.exists(path));
    return Value(there);
  }
  if (call == "fetch") return fetch(path, request);
  if (call == "list_files") {
    TRIREME_ASSIGN(const auto files, files_.list_files(path));
    Dict sizes;
    for (const auto& file : files) sizes[file.path] = static_cast<std::int64_t>(file.size);
    return Value(std::move(sizes));
  }
  if (call == "list_folders") {
    TRIREME_ASSIGN(const auto names, files_.list_folders(path));
    return Value(List(names.begin(), names.end()));
  }
  if (path == place_.folder && call != "make_folder") return base::error("{} is the run's folder", path);
  if (call == "write") return nothing(files_.write_atomically(path, request.content.data));
  if (call == "append") return nothing(append(request));
  if (call == "place") return nothing(place_upload(request));
  if (call == "make_folder") return nothing(files_.make_folder(path));
  if (call == "remove_file") return nothing(files_.remove_file(path));
  if (call == "remove_folder") return nothing(files_.remove_folder(path));
  return base::error("unknown call '{}'", call);
}

Result<std::optional<std::string>> StorageServer::copy_of_code(const std::string& path) {
  const bool in_storage = !place_.folder.empty() && (path == place_.folder || below(path, place_.folder));
  if (in_storage) return std::optional<std::string>();  // the script may be in a parent of the run folder
  const auto found = std::find_if(place_.code.begin(), place_.code.end(),
                                  [&](const auto& item) { return path == item.first || below(path, item.first); });
  if (found == place_.code.end()) return std::optional<std::string>();
  const auto& [root, digest] = *found;
  const std::string copy = fmt::format("{}/{}/{}", place_.scratch, kCode, digest);
  const std::lock_guard lock(code_mutex_);
  if (!fs::exists(copy)) {
    TRIREME_ASSIGN(const auto tree, storage::read_code(root));
    TRIREME_TRY(storage::remove_folder(copy + ".part"));
    TRIREME_TRY(storage::make_folder(place_.scratch + "/" + kCode));
    TRIREME_TRY(storage::copy_code(root, tree, copy + ".part"));
    if (::rename((copy + ".part").c_str(), copy.c_str()) != 0) return storage::failed("create", copy, errno);
  }
  if (path == root) return std::optional(copy);
  const std::string inside = path.substr(root.size() + 1);
  TRIREME_TRY(storage::check_relative(inside));
  return std::optional(copy + "/" + inside);
}

Result<Value> StorageServer::fetch(const std::string& path, const wire::FileRequest& request) const {
  if (request.offset < 0 || request.size < 0 || request.size > kLargestBlock) return base::error("invalid range");
  const base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return storage::failed("open", path, errno);
  Bytes block;
  block.data.resize(static_cast<std::size_t>(request.size));
  std::size_t got = 0;
  while (got < block.data.size()) {
    const ssize_t count = ::pread(file.get(), block.data.data() + got, block.data.size() - got,
                                  static_cast<off_t>(request.offset) + static_cast<off_t>(got));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return storage::failed("read", path, errno);
    if (count == 0) break;
    got += static_cast<std::size_t>(count);
  }
  block.data.resize(got);
  return Value(std::move(block));
}

Result<std::string> StorageServer::incoming(const std::string& name) const {
  const bool hex = name.size() == 32 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!hex) return base::error("'{}' is not the name of an upload", name);
  return fmt::format("{}/{}/{}", place_.scratch, kIncoming, name);
}

// A block that is sent again after a lost connection replaces itself.
Result<void> StorageServer::append(const wire::FileRequest& request) {
  TRIREME_ASSIGN(const std::string path, incoming(request.name));
  TRIREME_TRY(storage::make_folder(place_.scratch + "/" + kIncoming));
  const base::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!file.valid()) return storage::failed("create", path, errno);
  const std::string& data = request.content.data;
  for (std::size_t done = 0; done < data.size();) {
    const ssize_t count = ::pwrite(file.get(), data.data() + done, data.size() - done,
                                   static_cast<off_t>(request.offset) + static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return storage::failed("write", request.path, errno);
    done += static_cast<std::size_t>(count);
  }
  // Otherwise the sync at the end waits for all of it.
  if (!data.empty())
    ::sync_file_range(file.get(), request.offset, static_cast<off_t>(data.size()), SYNC_FILE_RANGE_WRITE);
  return {};
}

Result<void> StorageServer::place_upload(const wire::FileRequest& request) {
  TRIREME_ASSIGN(const std::string from, incoming(request.name));
  const std::string folder = fs::path(request.path).parent_path();
  {
    const base::Fd file(::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    struct stat info {};
    // Asked again after a lost connection.
    const bool placed = !file.valid() && ::stat(request.path.c_str(), &info) == 0 && info.st_size == request.size;
    if (placed) return {};
    if (!file.valid() || ::fstat(file.get(), &info) != 0) return storage::failed("open", from, errno);
    if (info.st_size != request.size) {
      return base::error("{} has arrived with {} of {} bytes", request.path, info.st_size, request.size);
    }
    if (::fsync(file.get()) != 0) return storage::failed("write", request.path, errno);
  }
  TRIREME_TRY(files_.make_folder(folder));
  if (::rename(from.c_str(), request.path.c_str()) != 0) return storage::failed("create", request.path, errno);
  return files_.sync_folder(folder);
}

}  // namespace trireme::control
