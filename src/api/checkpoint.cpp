#include "trireme/checkpoint.h"

#include <filesystem>
#include <map>

#include "api/train_session.h"
#include "base/json.h"
#include "checkpoint/download.h"
#include "checkpoint/sharded_tensors.h"
#include "checkpoint/shared_download.h"
#include "checkpoint/state_file.h"
#include "storage/local_files.h"
#include "storage/open_files.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using api::value_or_throw;

constexpr const char* kMetadataName = "/.metadata.json";

struct Opened {
  std::shared_ptr<storage::Files> files;  // shared by all users of the same storage
  std::string path;
};

Opened open(const std::string& path) {
  if (path.empty())
    throw std::runtime_error(
        "this checkpoint was created from a state and has not been reported: it has no folder yet");
  Opened opened;
  opened.files = value_or_throw(storage::open_files(path, opened.path));
  return opened;
}

// The part of rank 0 is at the top level, unless the checkpoint was committed without it during a preemption.
std::string lowest_part(const std::string& folder) {
  if (fs::exists(folder + "/state.json")) return folder;
  const auto parts = api::value_or_throw(checkpoint::rank_folders(folder));
  return parts.empty() ? folder : parts.front().native();
}

// The part to read. Without an explicit rank: the caller's own part if it exists.
std::string part_of(const std::string& folder, int rank) {
  const auto* current = api::current_if_any();
  const int own = rank >= 0 || !current ? rank : current->context.world_rank;
  const std::string part = fmt::format("{}/rank_{}", folder, own);
  if (own > 0 && fs::is_directory(part)) return part;
  if (rank > 0) throw std::runtime_error(fmt::format("{} has no state of rank {}", folder, rank));
  return rank == 0 ? folder : lowest_part(folder);
}

// The in-memory copies of the files in one part of the checkpoint that this worker was started from, by file name.
std::map<std::string, std::string> files_in_memory(const std::string& checkpoint, const std::string& part) {
  std::map<std::string, std::string> found;
  const auto* current = api::current_if_any();
  if (!current || !current->session || current->session->start().checkpoint != checkpoint) return found;
  const std::string inside = part == checkpoint ? "" : part.substr(checkpoint.size() + 1) + "/";
  for (const auto& [file, path] : current->session->start().memory) {
    if (file.starts_with(inside) && file.find('/', inside.size()) == std::string::npos) {
      found[file.substr(inside.size())] = path.as_string();
    }
  }
  return found;
}

}  // namespace

Checkpoint Checkpoint::from_directory(const std::string& path) {
  const auto opened = open(path);
  if (!opened.files->local()) return Checkpoint(path);
  if (!fs::is_directory(opened.path))
    throw std::runtime_error(fmt::format("checkpoint folder {} does not exist", path));
  return Checkpoint(fs::absolute(opened.path).native());
}

Checkpoint Checkpoint::from_state(Dict state) {
  Checkpoint made{""};
  made.state_ = std::make_shared<const Dict>(std::move(state));
  return made;
}

Checkpoint::Directory Checkpoint::as_directory() const {
  const auto opened = open(path_);
  Directory directory;
  if (opened.files->local()) {
    directory.path_ = opened.path;
    return directory;
  }
  auto download = std::make_shared<checkpoint::SharedDownload>(
      value_or_throw(checkpoint::SharedDownload::open(*opened.files, opened.path)));
  directory.path_ = download->folder();
  directory.held_ = std::move(download);
  return directory;
}

std::string Checkpoint::to_directory(const std::string& path) const {
  const auto opened = open(path_);
  value_or_throw(checkpoint::download(*opened.files, opened.path, path));
  return path;
}

Dict Checkpoint::load_state(int rank) const {
  if (state_) return *state_;
  const Directory directory = as_directory();
  const std::string part = part_of(directory.path(), rank);
  checkpoint::LoadOptions options;
  options.elsewhere = files_in_memory(directory.path(), part);
  if (!options.elsewhere.empty()) {
    const int own = api::current_if_any()->context.world_rank;
    fmt::print("rank {} loads {} from memory\n", own, fs::path(path_).filename().native());
  }
  // The download is deleted with `directory`; mapped files stay valid.
  return value_or_throw(checkpoint::load_whole_state(part, options));
}

Dict Checkpoint::get_metadata() const {
  const auto opened = open(path_);
  if (!value_or_throw(opened.files->exists(opened.path + kMetadataName))) return {};
  return value_or_throw(base::parse_json_dict(value_or_throw(opened.files->read(opened.path + kMetadataName))));
}

void Checkpoint::set_metadata(const Dict& metadata) {
  const auto opened = open(path_);
  value_or_throw(opened.files->write_atomically(opened.path + kMetadataName, base::to_json(metadata)));
}

void Checkpoint::update_metadata(const Dict& metadata) {
  Dict merged = get_metadata();
  for (const auto& [key, value] : metadata) merged[key] = value;
  set_metadata(merged);
}

}  // namespace trireme
