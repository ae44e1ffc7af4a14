#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/filesystem.h"
#include "wire/file_client.h"
#include "worker/node_memory.h"

namespace trireme::worker {

// The run's folder on the driver's machine, for workers on nodes that do not share its file system. Each call is a
// request to control/storage_server.h. Checkpoints that the driver does not have yet are read from the memory of the
// nodes. Thread-safe.
class DriverFileSystem final : public FileSystem {
 public:
  // Of URIs for register_filesystem(): "driver:///home/me/results/run".
  static constexpr const char* kScheme = "driver";

  explicit DriverFileSystem(wire::FileClient::Peer peer);

  // Later requests are of this attempt; the driver refuses those of earlier ones.
  void set_attempt(int attempt) { attempt_ = attempt; }
  // Before the first call; null: nodes hold no checkpoints.
  void set_memory(std::shared_ptr<NodeMemory> memory) { memory_ = std::move(memory); }

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
  // Throws std::runtime_error, as callers of a FileSystem expect.
  Value call(const char* name, const std::string& path, wire::FileRequest request = {});
  bool driver_has(const std::string& path);
  // Of the files that nodes hold below the path, or at it: sizes by the rest of the path.
  std::map<std::string, std::int64_t> held(const std::string& path);

  std::atomic<int> attempt_;
  wire::FileClient client_;
  std::shared_ptr<NodeMemory> memory_;  // shared with the session's checkpoint writer
};

// The one that this process uses, for code that has no session. Null: the run's storage needs none.
std::shared_ptr<DriverFileSystem> driver_file_system();
// Also registers it for its scheme.
void set_driver_file_system(std::shared_ptr<DriverFileSystem> files);

}  // namespace trireme::worker
