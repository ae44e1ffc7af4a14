// Files of the driver's machine, for workers on nodes that do not share its file system: checkpoints, code, and the
// logs of data.

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/log.h"
#include "storage/local_files.h"
#include "storage/run_names.h"
#include "worker/session.h"
#include "worker/shipped_code.h"

namespace trireme::worker {
namespace {

namespace fs = std::filesystem;

std::string driver_uri(const std::string& path) { return fmt::format("{}://{}", DriverFileSystem::kScheme, path); }

// The same place in the code that was fetched; nullopt: it is not in it.
std::optional<std::string> place_in(const std::map<std::string, std::string>& code, const std::string& path) {
  for (const auto& [there, here] : code) {
    if (path == there) return here;
    if (path.starts_with(there + "/")) return here + path.substr(there.size());
  }
  return std::nullopt;
}

bool sees_run_folder(const wire::Start& start) {
  const auto content = storage::read_file(start.path + "/" + storage::kRunFile);
  return content && content->find(start.run_id) != std::string::npos;
}

}  // namespace

Result<void> Session::open_files_of_driver(wire::Start& start) {
  if (start.files_address.empty()) return {};
  if (!driver_files_) {
    wire::FileClient::Peer peer;
    peer.what = "the driver's storage";
    TRIREME_ASSIGN(peer.address, wire::parse_address(start.files_address));
    peer.secret = ticket_.key;
    peer.hello.key_name = ticket_.key_name;
    peer.hello.run_id = ticket_.run_id;
    peer.hello.role = "storage";
    peer.hello.rank = ticket_.rank;
    peer.hello.pid = pid_;
    driver_files_ = std::make_shared<DriverFileSystem>(std::move(peer));
  }
  driver_files_->set_attempt(start.attempt);
  TRIREME_ASSIGN(start.code, fetch_code(*driver_files_, start.code));
  std::error_code failure;  // without the folder, the function sees the current one
  if (const auto folder = place_in(start.code, start.folder); folder && *folder != start.folder) {
    fs::current_path(*folder, failure);
  }
  const bool given = start.checkpoint && !start.checkpoint_in_storage &&
                     start.checkpoint->find("://") == std::string::npos && !fs::exists(*start.checkpoint, failure);
  if (given) start.checkpoint = driver_uri(*start.checkpoint);
  const bool sees_folder = sees_run_folder(start);
  const bool stores = !sees_folder && start.storage_uri.empty() && start.path == start.storage_path;
  if (stores) start.storage_uri = driver_uri(start.storage_path);
  if (stores) TRIREME_TRY(open_memory(start));
  if (given || stores) set_driver_file_system(driver_files_);
  if (sees_folder) return {};
  if (!data_logs_) {
    TRIREME_ASSIGN(auto folder, checkpoint::ScratchFolder::make());
    data_logs_.emplace(std::move(folder));
  }
  start.path = data_logs_->path();
  return {};
}

// Nodes may hold the checkpoint to start from, even if this attempt stores its own on the driver's disk.
Result<void> Session::open_memory(const wire::Start& start) {
  if (memory_ || ticket_.memory_address.empty()) return {};
  wire::FileClient::Peer agent;
  agent.what = "the agent's memory";
  TRIREME_ASSIGN(agent.address, wire::parse_address(ticket_.memory_address));
  agent.secret = ticket_.memory_secret;
  agent.hello.run_id = ticket_.run_id;
  agent.hello.role = "storage";
  agent.hello.rank = ticket_.rank;
  agent.hello.pid = pid_;
  NodeMemory::Place place{start.run_id, start.storage_path};
  const auto gigabytes = start.checkpoint_config.node_memory_gb;
  if (gigabytes && *gigabytes > 0.0) place.limit = static_cast<std::int64_t>(*gigabytes * 1e9);
  memory_ = std::make_shared<NodeMemory>(std::move(agent), std::move(place));
  driver_files_->set_memory(memory_);
  return {};
}

void Session::send_data_logs() {
  if (!data_logs_) return;
  const std::lock_guard lock(data_logs_mutex_);
  std::error_code none;  // no dataset is logged
  for (const auto& entry : fs::directory_iterator(data_logs_->path() + "/" + storage::kDataFolder, none)) {
    wire::DataLog message;
    message.name = entry.path().filename();
    auto& sent = data_logs_sent_[message.name];
    std::ifstream file(entry.path(), std::ios::binary);
    file.seekg(static_cast<std::streamoff>(sent));
    if (!file) {
      base::log_warning("could not read {}: `trireme data verify` will miss rows", entry.path().native());
      continue;
    }
    message.data = Bytes{std::string(std::istreambuf_iterator<char>(file), {})};
    if (message.data.data.empty()) continue;
    sent += message.data.data.size();
    tell(message);
  }
}

}  // namespace trireme::worker
