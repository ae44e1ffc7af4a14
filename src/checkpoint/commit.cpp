#include "checkpoint/commit.h"

#include <algorithm>
#include <set>
#include <thread>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/replaced.h"
#include "storage/parallel.h"
#include "storage/paths.h"
#include "storage/run_names.h"

namespace trireme::checkpoint {
namespace {

constexpr std::string_view kPrefix = "checkpoint_";
// One folder per name whose files are written by user code. It holds the mark until the checkpoint's own folder exists.
constexpr const char* kAnnouncedName = ".trireme_announced";
// Checkpoints being removed: folders that were moved here, and one file for each folder that the storage cannot move.
constexpr const char* kRemovedName = ".trireme_removed";
constexpr std::uint64_t kWorthThreads = std::uint64_t{4} << 20;
constexpr std::size_t kLongestName = 200;  // file systems allow 255 bytes

std::string folder_of(const std::string& run_path, const std::string& name) { return run_path + "/" + name; }
std::string in(const std::string& folder, std::string_view name) { return fmt::format("{}/{}", folder, name); }

Origin origin_of(const Manifest& manifest) { return {manifest.attempt, manifest.index}; }

// Where the files of a new checkpoint are when its folder is prepared.
enum class NewFiles { kElsewhere, kInTheFolder };

// Fails if a later report writes to the folder. Returns the existing mark.
base::Result<std::optional<Origin>> check_mark(storage::Files& files, const std::string& folder,
                                               const std::optional<Origin>& origin) {
  TRIREME_ASSIGN(const auto mark, read_mark(files, folder));
  if (origin && mark && *mark > *origin) {
    return base::error(
        "{} is already in use by report {}, which is later than report {}; use another checkpoint_dir_name for each "
        "report",
        files.describe(folder), mark->index, origin->index);
  }
  return mark;
}

// Clears the name for a new checkpoint.
base::Result<void> make_room(storage::Files& files, const std::string& run_path, const std::string& name,
                             const std::optional<Origin>& origin, NewFiles where) {
  const std::string folder = folder_of(run_path, name);
  TRIREME_ASSIGN(const auto there, read_manifest(files, folder));
  if (!there.manifest && !there.damage) return {};
  if (there.manifest && origin && origin_of(*there.manifest) >= *origin) {
    return base::error(
        "the files are too late: {} was committed (report {}, attempt {}) without them; "
        "every rank must report the same number of checkpoints",
        files.describe(folder), there.manifest->index, there.manifest->attempt);
  }
  if (there.manifest && where == NewFiles::kElsewhere) {
    TRIREME_ASSIGN(const bool moved, set_aside(files, run_path, name, origin_of(*there.manifest)));
    if (moved) return {};
  }
  TRIREME_TRY(check_mark(files, folder, origin));
  // Before the manifest is removed: a folder with neither would not be recognized as ours and would never be removed.
  TRIREME_TRY(write_mark(files, folder, origin));
  return remove_manifest(files, folder);
}

base::Result<void> make_ready(storage::Files& files, const std::string& run_path, const std::string& name,
                              const std::optional<Origin>& origin, NewFiles where) {
  const std::string folder = folder_of(run_path, name);
  TRIREME_TRY(make_room(files, run_path, name, origin, where));
  TRIREME_TRY(files.make_folder(folder));
  TRIREME_ASSIGN(const auto mark, check_mark(files, folder, origin));
  if (mark && mark == origin) return {};
  return write_mark(files, folder, origin);
}

std::string conflict_text(const std::string& path, const std::vector<int>& ranks) {
  return fmt::format("{}: rank {}", path, fmt::join(ranks, ", "));
}

// Removes files that are not in the manifest: leftovers of an earlier checkpoint with this name, or of a failed
// attempt. A reader that lists the folder must not treat them as part of this checkpoint.
base::Result<void> remove_unlisted(storage::Files& files, const std::string& folder,
                                   const std::vector<storage::FileEntry>& present,
                                   const std::set<std::string>& listed) {
  for (const auto& file : present) {
    if (listed.contains(file.path) || file.path == kUploadingName || file.path == kManifestName) continue;
    TRIREME_TRY(files.remove_file(in(folder, file.path)));
  }
  return {};
}

base::Result<void> check_present(storage::Files& files, const std::string& folder, const Manifest& manifest,
                                 const std::vector<storage::FileEntry>& present) {
  std::map<std::string_view, std::uint64_t> sizes;
  for (const auto& file : present) sizes[file.path] = file.size;
  for (const auto& file : manifest.files) {
    const auto found = sizes.find(file.path);
    if (found == sizes.end()) return base::error("{} is missing", files.describe(in(folder, file.path)));
    if (found->second != file.size) {
      return base::error("{} has {}, not {}", files.describe(in(folder, file.path)),
                         base::count_of(found->second, "byte"), file.size);
    }
  }
  return {};
}

bool is_ours(const std::string& path) {
  return std::string_view(path).substr(path.rfind('/') + 1).starts_with(storage::kOwnPrefix);
}

bool is_run_name(std::string_view name) {
  return std::find(storage::kRunNames.begin(), storage::kRunNames.end(), name) != storage::kRunNames.end();
}

bool is_default_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  return name.size() >= 6 && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

base::Result<bool> unfinished(storage::Files& files, const std::string& folder, std::string_view name) {
  if (is_run_name(name)) return false;
  TRIREME_ASSIGN(const bool committed, files.exists(in(folder, kManifestName)));
  if (committed) return false;
  TRIREME_ASSIGN(const Owner owner, owner_of(files, folder));
  // A crash between creating the folder and writing the mark leaves it empty.
  return owner == Owner::kOurs || (owner == Owner::kNobody && is_default_name(name));
}

// For storage that cannot move folders. The note survives a crash: without the mark or the manifest, the remaining
// files would not be recognized as ours.
base::Result<void> remove_in_place(storage::Files& files, const std::string& run_path, const std::string& name) {
  const std::string folder = folder_of(run_path, name);
  const std::string note = in(in(run_path, kRemovedName), name);
  TRIREME_TRY(files.write_atomically(note, ""));
  TRIREME_TRY(remove_manifest(files, folder));
  TRIREME_TRY(files.remove_folder(folder));
  return files.remove_file(note);
}

// Moves the folder away first if possible: a crash must not leave a partial folder under the checkpoint's name.
base::Result<void> discard(storage::Files& files, const std::string& run_path, const std::string& name) {
  const std::string all = in(run_path, kRemovedName);
  TRIREME_TRY(files.remove_folder(in(all, name)));
  TRIREME_ASSIGN(const bool moved, files.move_folder(folder_of(run_path, name), in(all, name)));
  return moved ? files.remove_folder(all) : remove_in_place(files, run_path, name);
}

// Completes interrupted calls of remove_in_place().
base::Result<void> finish_removals(storage::Files& files, const std::string& run_path) {
  const std::string all = in(run_path, kRemovedName);
  TRIREME_ASSIGN(const bool any, files.exists(all));
  if (!any) return {};
  TRIREME_ASSIGN(const auto notes, files.list_files(all));
  for (const auto& note : notes) {
    if (!check_name(note.path)) continue;  // a file in a folder that was moved here
    TRIREME_ASSIGN(const bool committed, files.exists(in(folder_of(run_path, note.path), kManifestName)));
    if (!committed) TRIREME_TRY(files.remove_folder(folder_of(run_path, note.path)));
  }
  return files.remove_folder(all);
}

// Removes folders that were announced but never adopted: their writer was interrupted.
base::Result<void> remove_announced(storage::Files& files, const std::string& run_path) {
  const std::string all = in(run_path, kAnnouncedName);
  TRIREME_ASSIGN(const bool some, files.exists(all));
  if (!some) return {};
  TRIREME_ASSIGN(const auto names, files.list_folders(all));
  for (const auto& name : names) {
    const std::string folder = folder_of(run_path, name);
    TRIREME_ASSIGN(const bool there, files.exists(folder));
    TRIREME_ASSIGN(const bool committed, files.exists(in(folder, kManifestName)));
    if (there && !committed) TRIREME_TRY(discard(files, run_path, name));
  }
  return files.remove_folder(all);
}

// A crash may leave a mark or a temporary file in a committed checkpoint.
base::Result<void> remove_leftovers(storage::Files& files, const std::string& folder) {
  TRIREME_ASSIGN(const auto present, files.list_files(folder));
  for (const auto& file : present) {
    if (is_ours(file.path) && file.path != kManifestName) TRIREME_TRY(files.remove_file(in(folder, file.path)));
  }
  return {};
}

// Number of folders to inspect in parallel: remote storage takes tens of milliseconds per folder, and a run may have
// hundreds. A few folders are not worth a thread.
std::size_t lookers(std::size_t folders) { return std::clamp<std::size_t>(folders / 4, 1, 16); }

// Adds the folders with a manifest to the listing. Returns the names of the others.
base::Result<std::vector<std::string>> look_into(storage::Files& files, const std::string& run_path,
                                                 const std::vector<std::string>& names, Listing& listing) {
  std::vector<ManifestFile> found(names.size());
  TRIREME_TRY(storage::in_parallel(names.size(), lookers(names.size()), [&](std::size_t i) -> base::Result<void> {
    TRIREME_ASSIGN(found[i], read_manifest(files, folder_of(run_path, names[i])));
    return {};
  }));
  std::vector<std::string> empty;
  for (std::size_t i = 0; i < names.size(); ++i) {
    auto& [manifest, damage] = found[i];
    if (!manifest && !damage) empty.push_back(names[i]);
    if (manifest) listing.committed.push_back({names[i], folder_of(run_path, names[i]), *std::move(manifest)});
    if (damage) listing.damaged.push_back(*std::move(damage));
  }
  return empty;
}

// The folders that may be checkpoints.
base::Result<std::vector<std::string>> folders_of(storage::Files& files, const std::string& run_path) {
  TRIREME_ASSIGN(auto names, files.list_folders(run_path));
  std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
  return names;
}

// Number of files to read in parallel. For small local files, a thread costs more than it saves.
std::size_t readers(const storage::Files& files, const std::vector<storage::FileRecord>& records) {
  std::uint64_t bytes = 0;
  for (const auto& record : records) bytes += record.size;
  if (files.local() && bytes < kWorthThreads) return 1;
  return std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 8);
}

}  // namespace

std::string default_name(std::int64_t index) { return fmt::format("{}{:06}", kPrefix, index); }

base::Result<void> check_name(const std::string& name) {
  const bool control = std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos || control) {
    return base::error(
        "invalid checkpoint name '{}': use a plain folder name without '/' or control characters that does not start "
        "with a dot",
        name);
  }
  if (name.size() > kLongestName) {
    return base::error("invalid checkpoint name '{}': it has {} bytes, more than {}", name, name.size(), kLongestName);
  }
  if (is_run_name(name)) {
    return base::error("invalid checkpoint name '{}': the run itself uses it; choose another name", name);
  }
  return {};
}

base::Result<std::string> begin(storage::Files& files, const std::string& run_path, const std::string& name,
                                const std::optional<Origin>& origin) {
  TRIREME_TRY(check_name(name));
  TRIREME_TRY(make_ready(files, run_path, name, origin, NewFiles::kElsewhere));
  return folder_of(run_path, name);
}

base::Result<std::vector<storage::FileRecord>> upload(storage::Files& files, const std::string& source,
                                                      const std::string& run_path, const std::string& name,
                                                      storage::Take take, const std::optional<Origin>& origin) {
  TRIREME_TRY(check_name(name));
  const std::string folder = folder_of(run_path, name);
  TRIREME_ASSIGN(const bool here, files.same_folder(source, folder));
  TRIREME_TRY(make_ready(files, run_path, name, origin, here ? NewFiles::kInTheFolder : NewFiles::kElsewhere));
  if (here) return files.adopt_folder(folder);
  return files.put_folder(source, folder, take);
}

base::Result<void> announce(storage::Files& files, const std::string& run_path, const std::string& name,
                            const std::optional<Origin>& origin) {
  TRIREME_TRY(check_name(name));
  TRIREME_TRY(make_room(files, run_path, name, origin, NewFiles::kElsewhere));
  const std::string marked = in(in(run_path, kAnnouncedName), name);
  TRIREME_TRY(files.make_folder(marked));
  return write_mark(files, marked, origin);
}

base::Result<std::vector<storage::FileRecord>> adopt(storage::Files& files, const std::string& run_path,
                                                     const std::string& name, const std::optional<Origin>& origin) {
  TRIREME_TRY(check_name(name));
  const std::string folder = folder_of(run_path, name);
  TRIREME_TRY(make_ready(files, run_path, name, origin, NewFiles::kInTheFolder));
  TRIREME_ASSIGN(auto records, files.adopt_folder(folder));
  // The folder has its own mark now. If several ranks announced the name, another one may have removed this already.
  TRIREME_TRY(files.remove_folder(in(in(run_path, kAnnouncedName), name)));
  return records;
}

base::Result<Merged> merge(storage::Files& files, const std::string& run_path, const std::string& name,
                           const std::map<int, std::vector<storage::FileRecord>>& by_rank) {
  struct Stored {
    std::vector<storage::FileRecord> versions;
    std::vector<int> ranks;
  };
  std::map<std::string, Stored> by_path;
  for (const auto& [rank, records] : by_rank) {
    for (const auto& record : records) {
      auto& stored = by_path[record.path];
      stored.ranks.push_back(rank);
      auto& versions = stored.versions;
      if (std::find(versions.begin(), versions.end(), record) == versions.end()) versions.push_back(record);
    }
  }
  Merged merged;
  for (auto& [path, stored] : by_path) {
    if (stored.versions.size() == 1) {
      merged.files.push_back(std::move(stored.versions.front()));
      continue;
    }
    const std::string file = in(folder_of(run_path, name), path);
    TRIREME_ASSIGN(const auto digest, files.checksum(file), "{} was stored by several ranks", files.describe(file));
    const auto standing = std::find_if(stored.versions.begin(), stored.versions.end(),
                                       [&, &digest = digest](const auto& each) { return each.xxh3 == digest; });
    if (standing == stored.versions.end()) {
      return base::error("{} has content that no rank stored (XXH3 {}); use different file names on each rank",
                         files.describe(file), digest);
    }
    merged.files.push_back(*standing);
    merged.conflicts.push_back(conflict_text(path, stored.ranks));
  }
  return merged;
}

base::Result<Committed> commit(storage::Files& files, const std::string& run_path, const std::string& name,
                               Manifest manifest) {
  TRIREME_TRY(check_name(name));
  const std::string folder = folder_of(run_path, name);
  TRIREME_ASSIGN(const auto mark, read_mark(files, folder), "could not commit {}", files.describe(folder));
  if (mark && *mark != origin_of(manifest)) {
    return base::error(
        "could not commit {} of report {}: report {} writes to it; use another checkpoint_dir_name for each report",
        files.describe(folder), manifest.index, mark->index);
  }
  TRIREME_ASSIGN(const auto present, files.list_files(folder), "could not commit {}", files.describe(folder));
  std::set<std::string> listed;
  for (const auto& file : manifest.files) listed.insert(file.path);
  std::erase_if(manifest.files, [](const auto& file) { return file.path == kMetadataName; });
  TRIREME_TRY(check_present(files, folder, manifest, present), "could not commit {}", files.describe(folder));
  TRIREME_TRY(remove_unlisted(files, folder, present, listed), "could not commit {}", files.describe(folder));
  TRIREME_TRY(files.write_atomically(in(folder, kManifestName), encode(manifest)), "could not commit {}",
              files.describe(folder));
  TRIREME_TRY(files.sync_folder(run_path), "could not commit {}", files.describe(folder));

  // The checkpoint is committed. If the cleanup fails, remove_unfinished() does it later.
  auto tidied = files.remove_file(in(folder, kUploadingName));
  if (tidied) tidied = drop_replaced(files, run_path, name);
  if (!tidied) base::log_debug("{}", tidied.error().message());
  return Committed{name, folder, std::move(manifest)};
}

base::Result<void> update(storage::Files& files, const std::string& run_path, const std::string& name,
                          const Manifest& manifest) {
  const std::string path = in(folder_of(run_path, name), kManifestName);
  TRIREME_ASSIGN(const bool there, files.exists(path));
  if (!there) return base::error("{} is not a committed checkpoint", files.describe(folder_of(run_path, name)));
  return files.write_atomically(path, encode(manifest));
}

base::Result<Listing> list_committed(storage::Files& files, const std::string& run_path) {
  Listing listing;
  TRIREME_ASSIGN(const auto names, folders_of(files, run_path));
  TRIREME_ASSIGN(const auto empty, look_into(files, run_path, names, listing));
  TRIREME_ASSIGN(auto replaced, list_replaced(files, run_path));
  // A replacement may have been committed since the first pass, and the replaced checkpoint removed.
  TRIREME_TRY(look_into(files, run_path, empty, listing));
  for (auto& each : replaced) {
    const bool superseded = std::any_of(listing.committed.begin(), listing.committed.end(),
                                        [&](const auto& one) { return one.name == each.name; });
    if (!superseded) listing.committed.push_back({each.name, each.path, std::move(each.manifest)});
  }
  std::stable_sort(listing.committed.begin(), listing.committed.end(),
                   [](const auto& a, const auto& b) { return a.manifest.index < b.manifest.index; });
  return listing;
}

base::Result<void> verify(storage::Files& files, const Committed& checkpoint, bool checksums) {
  const auto& expected = checkpoint.manifest.files;
  TRIREME_ASSIGN(const auto present, files.list_files(checkpoint.path), "{} is damaged", checkpoint.name);
  TRIREME_TRY(check_present(files, checkpoint.path, checkpoint.manifest, present), "{} is damaged", checkpoint.name);
  if (!checksums) return {};
  return storage::in_parallel(expected.size(), readers(files, expected), [&](std::size_t i) -> base::Result<void> {
    const std::string path = in(checkpoint.path, expected[i].path);
    TRIREME_ASSIGN(const auto digest, files.checksum(path), "{} is damaged", checkpoint.name);
    if (digest == expected[i].xxh3) return {};
    return base::error("{} is damaged: {} has changed: its XXH3 is {}, but the manifest lists {}", checkpoint.name,
                       files.describe(path), digest, expected[i].xxh3);
  });
}

base::Result<void> remove(storage::Files& files, const std::string& run_path, const std::string& name, Origin origin) {
  TRIREME_TRY(check_name(name));
  const auto there = [&]() -> base::Result<bool> {
    TRIREME_ASSIGN(const auto found, read_manifest(files, folder_of(run_path, name)));
    return found.manifest && origin_of(*found.manifest) == origin;
  };
  TRIREME_ASSIGN(const bool in_its_place, there());
  // Derived names are never reused by another report.
  if (in_its_place && name == default_name(origin.index)) return discard(files, run_path, name);
  if (in_its_place) {
    // To the same place to which a new checkpoint with this name would move it. The second of the two finds the place
    // in use and leaves the new folder alone.
    TRIREME_ASSIGN(const bool moved, set_aside(files, run_path, name, origin));
    TRIREME_ASSIGN(const bool cannot_move, moved ? base::Result<bool>(false) : there());
    if (cannot_move) {
      // A new checkpoint has begun and removes the manifest itself.
      TRIREME_ASSIGN(const bool begun, files.exists(in(folder_of(run_path, name), kUploadingName)));
      return begun ? base::Result<void>() : remove_in_place(files, run_path, name);
    }
  }
  return drop_replaced(files, run_path, name, origin);
}

base::Result<void> remove_unfinished(storage::Files& files, const std::string& run_path) {
  TRIREME_TRY(finish_removals(files, run_path));
  TRIREME_TRY(remove_announced(files, run_path));
  TRIREME_TRY(bring_back_replaced(files, run_path));
  TRIREME_ASSIGN(const auto names, folders_of(files, run_path));
  std::vector<char> gone(names.size());  // not bool: threads write to it
  TRIREME_TRY(storage::in_parallel(names.size(), lookers(names.size()), [&](std::size_t i) -> base::Result<void> {
    const std::string folder = folder_of(run_path, names[i]);
    TRIREME_ASSIGN(gone[i], unfinished(files, folder, names[i]));
    if (gone[i] || !files.local()) return {};
    TRIREME_ASSIGN(const bool committed, files.exists(in(folder, kManifestName)));
    return committed ? remove_leftovers(files, folder) : base::Result<void>();
  }));
  // Sequentially: all use the same folder for removed checkpoints.
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (gone[i]) TRIREME_TRY(discard(files, run_path, names[i]));
  }
  return files.sync_folder(run_path);
}

}  // namespace trireme::checkpoint
