#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "trireme/filesystem.h"
#include "wire/address.h"
#include "wire/message.h"

namespace trireme::worker {

// The run's folder on the driver's machine, for workers on nodes that do not share its file system. Each call is a
// request to control/storage_server.h. Thread-safe.
class DriverFileSystem final : public FileSystem {
 public:
  // Of URIs for register_filesystem(): "driver:///home/me/results/run".
  static constexpr const char* kScheme = "driver";

  struct Peer {
    wire::Address address;
    std::string secret;
    wire::Hello hello;
  };
  explicit DriverFileSystem(Peer peer);
  ~DriverFileSystem() override;

  // Later requests are of this attempt; the driver refuses those of earlier ones.
  void set_attempt(int attempt) { attempt_ = attempt; }

  std::string type_name() const override { return kScheme; }
  bool exists(const std::string& path) override;
  std::string read(const std::string& path) override;
  void write(const std::string& path, std::string_view content) override;
  void upload(const std::string& local_file, const std::string& path) override;
  void download(const std::string& path, const std::string& local_file) override;
  std::vector<StoredFile> list_files(const std::string& folder) override;
  std::vector<std::string> list_folders(const std::string& folder) override;
  void make_folder(const std::string& path) override;
  void remove_file(const std::string& path) override;
  void remove_folder(const std::string& path) override;

 private:
  class Connection;

  // Throws std::runtime_error, as callers of a FileSystem expect.
  Value call(const char* name, const std::string& path, wire::FileRequest request = {});
  std::unique_ptr<Connection> take();
  void give_back(std::unique_ptr<Connection> connection);

  const Peer peer_;
  const pid_t process_;  // a forked copy must not use the connections
  std::atomic<int> attempt_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<std::unique_ptr<Connection>> idle_;
  std::size_t in_use_ = 0;
};

// The one that this process uses, for code that has no session. Null: the run's storage needs none.
std::shared_ptr<DriverFileSystem> driver_file_system();
// Also registers it for its scheme.
void set_driver_file_system(std::shared_ptr<DriverFileSystem> files);

}  // namespace trireme::worker
