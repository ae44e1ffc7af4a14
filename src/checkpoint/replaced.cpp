#include "checkpoint/replaced.h"

#include <tuple>

namespace trireme::checkpoint {
namespace {

constexpr const char* kDroppedName = ".trireme_dropped";

std::string all_of(const std::string& run_path) { return run_path + "/" + kReplacedName; }
std::string all_of(const std::string& run_path, const std::string& name) { return all_of(run_path) + "/" + name; }

std::string aside_of(const std::string& run_path, const std::string& name, Origin origin) {
  return fmt::format("{}/{}_{}", all_of(run_path, name), origin.attempt, origin.index);
}

bool later(const Manifest& a, const Manifest& b) { return std::tie(a.attempt, a.index) > std::tie(b.attempt, b.index); }

base::Result<std::vector<std::string>> folders_if_any(storage::Files& files, const std::string& folder) {
  TRIREME_ASSIGN(const bool there, files.exists(folder));
  if (!there) return std::vector<std::string>();
  return files.list_folders(folder);
}

}  // namespace

base::Result<ManifestFile> read_manifest(storage::Files& files, const std::string& folder) {
  const std::string path = folder + "/" + kManifestName;
  TRIREME_ASSIGN(const bool there, files.exists(path));
  if (!there) return ManifestFile{};
  auto text = files.read(path);
  if (!text) {
    TRIREME_ASSIGN(const bool still_there, files.exists(path));
    if (!still_there) return ManifestFile{};  // removed in the meantime
    return std::move(text).error();
  }
  auto manifest = decode_manifest(*text);
  if (manifest) return ManifestFile{*std::move(manifest), std::nullopt};
  return ManifestFile{std::nullopt,
                      fmt::format("{} cannot be used: {}", files.describe(path), manifest.error().message())};
}

base::Result<void> remove_manifest(storage::Files& files, const std::string& folder) {
  TRIREME_TRY(files.remove_file(folder + "/" + kManifestName));
  return files.sync_folder(folder);
}

base::Result<bool> set_aside(storage::Files& files, const std::string& run_path, const std::string& name,
                             Origin origin) {
  const std::string folder = run_path + "/" + name;
  TRIREME_ASSIGN(const bool moved, files.move_folder(folder, aside_of(run_path, name, origin)));
  if (moved) return true;
  TRIREME_ASSIGN(const bool still_there, files.exists(folder + "/" + kManifestName));
  return !still_there;  // another process moved it first
}

base::Result<void> drop_replaced(storage::Files& files, const std::string& run_path, const std::string& name) {
  const std::string all = all_of(run_path, name);
  TRIREME_ASSIGN(const auto versions, folders_if_any(files, all));
  if (versions.empty()) return {};
  for (const auto& version : versions) TRIREME_TRY(remove_manifest(files, fmt::format("{}/{}", all, version)));
  return files.remove_folder(all);
}

base::Result<void> drop_replaced(storage::Files& files, const std::string& run_path, const std::string& name,
                                 Origin origin) {
  const std::string aside = aside_of(run_path, name, origin);
  TRIREME_ASSIGN(const bool there, files.exists(aside));
  if (!there) return {};
  TRIREME_TRY(remove_manifest(files, aside));
  // A rank that has read the old manifest may still be about to move the folder of that name here. A faster rank may
  // have begun the new checkpoint in it by then, so the place must not become free: move_folder() fails if it has
  // content.
  TRIREME_TRY(files.write_atomically(aside + "/" + kDroppedName, ""));
  TRIREME_ASSIGN(const auto entries, files.list_files(aside));
  for (const auto& entry : entries) {
    if (entry.path != kDroppedName) TRIREME_TRY(files.remove_file(aside + "/" + entry.path));
  }
  return {};
}

base::Result<void> forget_dropped(storage::Files& files, const std::string& run_path) {
  TRIREME_ASSIGN(const auto names, folders_if_any(files, all_of(run_path)));
  for (const auto& name : names) {
    TRIREME_ASSIGN(const auto versions, folders_if_any(files, all_of(run_path, name)));
    for (const auto& version : versions) {
      const std::string aside = all_of(run_path, name) + "/" + version;
      TRIREME_ASSIGN(const bool dropped, files.exists(aside + "/" + kDroppedName));
      if (dropped) TRIREME_TRY(files.remove_folder(aside));
    }
    TRIREME_ASSIGN(const auto left, files.list_folders(all_of(run_path, name)));
    if (left.empty()) TRIREME_TRY(files.remove_folder(all_of(run_path, name)));
  }
  TRIREME_ASSIGN(const auto left, folders_if_any(files, all_of(run_path)));
  return left.empty() ? files.remove_folder(all_of(run_path)) : base::Result<void>();
}

base::Result<std::vector<Replaced>> list_replaced(storage::Files& files, const std::string& run_path) {
  std::vector<Replaced> found;
  TRIREME_ASSIGN(const auto names, folders_if_any(files, all_of(run_path)));
  for (const auto& name : names) {
    TRIREME_ASSIGN(const auto versions, folders_if_any(files, all_of(run_path, name)));
    std::optional<Replaced> newest;
    for (const auto& version : versions) {
      const std::string path = all_of(run_path, name) + "/" + version;
      TRIREME_ASSIGN(auto found_here, read_manifest(files, path));
      auto& manifest = found_here.manifest;
      if (!manifest) continue;  // partially removed
      if (!newest || later(*manifest, newest->manifest)) newest = Replaced{name, path, *std::move(manifest)};
    }
    if (newest) found.push_back(*std::move(newest));
  }
  return found;
}

base::Result<void> bring_back_replaced(storage::Files& files, const std::string& run_path) {
  TRIREME_ASSIGN(const bool any, files.exists(all_of(run_path)));
  if (!any) return {};
  TRIREME_ASSIGN(const auto replaced, list_replaced(files, run_path));
  bool settled = true;
  for (const auto& each : replaced) {
    const std::string folder = run_path + "/" + each.name;
    TRIREME_ASSIGN(const auto there, read_manifest(files, folder));
    // Keep the damaged one for inspection, and the intact one aside, where list_replaced() finds it.
    if (there.damage) settled = false;
    if (there.damage || there.manifest) continue;
    TRIREME_TRY(files.remove_folder(folder));
    TRIREME_ASSIGN(const bool moved, files.move_folder(each.path, folder));
    if (!moved) return base::error("could not move {} back to {}", files.describe(each.path), files.describe(folder));
  }
  if (!settled) return {};
  return files.remove_folder(all_of(run_path));
}

base::Result<std::string> path_after_bringing_back(storage::Files& files, const std::string& run_path,
                                                   const std::string& path) {
  const std::string aside = all_of(run_path) + "/";
  if (!path.starts_with(aside)) return path;
  TRIREME_ASSIGN(const bool still_aside, files.exists(path));
  return still_aside ? path : run_path + "/" + path.substr(aside.size(), path.rfind('/') - aside.size());
}

}  // namespace trireme::checkpoint
