#pragma once

#include <asio/io_context.hpp>
#include <asio/thread_pool.hpp>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "storage/local_files.h"
#include "wire/server.h"

namespace trireme::control {

// Serves files of this machine to workers on nodes that do not see them (worker/driver_file_system.h), on a port and
// threads of its own: the controller must handle heartbeats while a disk syncs.
//
// Peers have proved the run's secret. They may read and write checkpoints and the run's hidden files, and read the
// checkpoint that the user gave and the code that workers import.
class StorageServer final : private wire::ServerHandler {
 public:
  struct Place {
    std::string run_id;
    std::string folder;                       // of the checkpoints; empty: they are in remote storage
    std::optional<std::string> readable;      // another folder
    std::map<std::string, std::string> code;  // folders or files, and their digests
    std::string scratch;                      // on the same file system as `folder`
  };
  static base::Result<std::unique_ptr<StorageServer>> start(const wire::Address& listen, const std::string& secret,
                                                            Place place);
  // Ends all connections and removes unfinished uploads.
  ~StorageServer() override;

  const wire::Address& address() const { return server_->address(); }
  // Requests of other attempts are refused: their workers are cut off, or about to end.
  void set_attempt(int attempt) { attempt_ = attempt; }

 private:
  explicit StorageServer(Place place);

  base::Result<wire::Welcome> admit(const wire::Hello& hello) override;
  void opened(const std::shared_ptr<wire::Channel>&) override {}
  void received(const std::shared_ptr<wire::Channel>& channel, wire::Message message) override;
  void closed(const std::shared_ptr<wire::Channel>&, const base::Error&) override {}
  void refused(const std::string& from, const base::Error& why) override;

  enum class Use { kRead, kWrite };
  base::Result<void> check(const std::string& path, Use use) const;
  base::Result<void> remove_scratch() const;
  base::Result<Value> perform(const wire::FileRequest& request);
  base::Result<Value> fetch(const std::string& path, const wire::FileRequest& request) const;
  // Where the code at this path is read: in a copy of what it was when the first node asked, because the user may edit
  // it during the run. nullopt: it is no code.
  base::Result<std::optional<std::string>> copy_of_code(const std::string& path);
  base::Result<std::string> incoming(const std::string& name) const;
  base::Result<void> append(const wire::FileRequest& request);
  base::Result<void> place_upload(const wire::FileRequest& request);

  const Place place_;
  storage::LocalFiles files_;
  std::atomic<int> attempt_ = -1;
  std::mutex code_mutex_;
  asio::io_context io_{1};
  std::unique_ptr<wire::Server> server_;
  asio::thread_pool disk_;  // calls that may block
  std::jthread thread_;     // last: stops first
};

}  // namespace trireme::control
