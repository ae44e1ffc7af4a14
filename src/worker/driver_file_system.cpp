#include "worker/driver_file_system.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "base/fd.h"
#include "base/fields.h"
#include "base/hex.h"
#include "checkpoint/manifest.h"
#include "wire/secret.h"

namespace trireme::worker {
namespace {

constexpr std::int64_t kBlock = std::int64_t{4} << 20;

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

DriverFileSystem::DriverFileSystem(wire::FileClient::Peer peer)
    : attempt_(peer.hello.attempt), client_(std::move(peer)) {}

Value DriverFileSystem::call(const char* name, const std::string& path, wire::FileRequest request) {
  request.call = name;
  request.path = path;
  request.attempt = attempt_;
  auto answer = client_.call(std::move(request));
  if (!answer) fail(answer.error());
  return *std::move(answer);
}

bool DriverFileSystem::driver_has(const std::string& path) { return value_as<bool>(call("exists", path)); }

std::map<std::string, std::int64_t> DriverFileSystem::held(const std::string& path) {
  if (!memory_) return {};
  auto files = memory_->list(path);
  if (!files) fail(files.error());
  return *std::move(files);
}

bool DriverFileSystem::exists(const std::string& path) { return driver_has(path) || !held(path).empty(); }

std::string DriverFileSystem::read(const std::string& path) {
  // The driver first: metadata may have changed since the checkpoint was reported.
  const auto in_memory = held(path);
  if (const auto found = in_memory.find(""); found != in_memory.end() && !driver_has(path)) {
    auto content = memory_->fetch(path, 0, found->second);
    if (!content) fail(content.error());
    if (*content) return **std::move(content);
  }
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
  bool in_memory = memory_ != nullptr;  // and nearer than the driver
  for (std::int64_t got = 0;;) {
    std::string data;
    if (in_memory) {
      auto block = memory_->fetch(path, got, kBlock);
      // A node was lost, or the checkpoint is no longer held: the driver may have it.
      in_memory = block.ok() && block->has_value();
      if (in_memory) data = **std::move(block);
    }
    if (!in_memory) {
      wire::FileRequest request;
      request.offset = got;
      request.size = kBlock;
      data = value_as<Bytes>(call("fetch", path, std::move(request))).data;
    }
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
  if (const auto in_memory = held(folder);
      !in_memory.empty() && !driver_has(folder + "/" + checkpoint::kManifestName)) {
    std::vector<StoredFile> files;
    for (const auto& [path, size] : in_memory) files.push_back({path, static_cast<std::uint64_t>(size)});
    return files;
  }
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
