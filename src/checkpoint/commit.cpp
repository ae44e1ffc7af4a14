#include "checkpoint/commit.h"

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "storage/local_files.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint_";
// Written while files arrive, so that remove_unfinished() knows folders with names that the user chose.
constexpr const char* kUploadingName = ".trireme_uploading";

std::string folder_of(const std::string& run_path, const std::string& name) { return fs::path(run_path) / name; }

bool unfinished(const fs::path& folder) {
  std::error_code ignored;  // a folder that cannot be looked at is not ours to remove
  if (fs::exists(folder / kManifestName, ignored)) return false;
  return fs::exists(folder / kUploadingName, ignored) ||
         std::string_view(folder.filename().native()).starts_with(kPrefix);
}

base::Result<Committed> read_manifest(const fs::path& folder) {
  TRIREME_ASSIGN(auto text, storage::read_file(folder / kManifestName));
  TRIREME_ASSIGN(auto manifest, base::parse_json_dict(text), "{}", (folder / kManifestName).native());
  const Value* index = manifest.find("index");
  const Value* metrics = manifest.find("metrics");
  if (!index || !index->get_if<std::int64_t>() || !metrics || !metrics->get_if<Dict>()) {
    return base::error("{} has no index or no metrics", (folder / kManifestName).native());
  }
  return Committed{index->as_int(), folder.filename(), folder, metrics->as_dict()};
}

}  // namespace

std::string default_name(std::int64_t index) { return fmt::format("{}{:06}", kPrefix, index); }

base::Result<void> check_name(const std::string& name) {
  if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos || name == "logs") {
    return base::error(
        "'{}' cannot name a checkpoint: use a plain folder name, without '/' and not starting with a dot", name);
  }
  return {};
}

base::Result<void> upload(const std::string& source, const std::string& run_path, const std::string& name) {
  std::error_code failure;
  if (!fs::is_directory(source, failure)) return base::error("the checkpoint folder {} does not exist", source);
  const std::string target = folder_of(run_path, name);
  TRIREME_TRY(storage::make_folder(target));
  TRIREME_TRY(storage::write_file_atomically(fs::path(target) / kUploadingName, ""));
  // The user may have written straight into the run folder: then there is nothing to copy.
  if (!fs::equivalent(source, target, failure)) TRIREME_TRY(storage::copy_folder(source, target));
  return {};
}

base::Result<Committed> commit(const std::string& run_path, const std::string& name, std::int64_t index,
                               const Metrics& metrics) {
  const fs::path folder = folder_of(run_path, name);
  std::error_code ignored;  // absent is what it shall be
  fs::remove(folder / kUploadingName, ignored);
  TRIREME_ASSIGN(auto files, storage::list_files(folder));
  List listed;
  for (const auto& file : files) listed.push_back(Dict{{"path", file.path}, {"size", file.size}});
  Dict manifest{{"format", 1}, {"index", index}, {"metrics", metrics}, {"files", std::move(listed)}};
  TRIREME_TRY(storage::write_file_atomically(folder / kManifestName, base::to_pretty_json(manifest)));
  TRIREME_TRY(storage::sync_folder(run_path));
  return Committed{index, name, folder, metrics};
}

base::Result<std::vector<Committed>> list_committed(const std::string& run_path) {
  std::vector<Committed> found;
  std::error_code failure;
  fs::directory_iterator it(run_path, failure);
  if (failure) return base::system_error(fmt::format("could not list {}", run_path), failure.value());
  for (const auto& entry : it) {
    if (!fs::exists(entry.path() / kManifestName, failure)) continue;
    TRIREME_ASSIGN(auto committed, read_manifest(entry.path()));
    found.push_back(std::move(committed));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  return found;
}

base::Result<void> remove_unfinished(const std::string& run_path) {
  std::error_code failure;
  fs::directory_iterator it(run_path, failure);
  if (failure) return base::system_error(fmt::format("could not list {}", run_path), failure.value());
  for (const auto& entry : it) {
    if (entry.is_directory(failure) && unfinished(entry.path())) TRIREME_TRY(storage::remove_folder(entry.path()));
  }
  return {};
}

}  // namespace trireme::checkpoint
