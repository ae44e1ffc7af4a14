#include "storage/local_files.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "base/text.h"
#include "storage/disk_error.h"
#include "storage/intake.h"
#include "storage/paths.h"
#include "storage/posix_disk.h"
#include "storage/walk.h"

namespace trireme::storage {
namespace {

std::string parent_of(const std::string& path) { return std::filesystem::path(path).parent_path().native(); }

int write_and_sync(OpenFile& file, std::string_view content) {
  if (int failure = file.write(content)) return failure;
  if (int failure = file.sync()) return failure;
  return file.close();
}

std::string join(const std::string& folder, const std::string& name) { return folder + "/" + name; }

base::Error differs(const std::string& path, const FileRecord& expected, const FileRecord& found) {
  if (found.size != expected.size) {
    return base::error("{} is damaged: it has {}, but its manifest lists {}", path, base::count_of(found.size, "byte"),
                       expected.size);
  }
  return base::error("{} is damaged: its XXH3 is {}, but its manifest lists {}", path, found.xxh3, expected.xxh3);
}

}  // namespace

LocalFiles::LocalFiles() : LocalFiles(std::make_shared<PosixDisk>()) {}
LocalFiles::LocalFiles(std::shared_ptr<Disk> disk) : disk_(std::move(disk)) {}

std::shared_ptr<Files> LocalFiles::with_policy(const std::function<void(RetryPolicy&)>&) const {
  return std::make_shared<LocalFiles>(disk_);
}

base::Result<bool> LocalFiles::exists(const std::string& path) {
  Status status;
  const int failure = disk_->look_through(path, status);
  if (failure == ENOENT || failure == ENOTDIR) return false;
  if (failure) return failed("access", path, failure);
  return true;
}

base::Result<std::string> LocalFiles::read(const std::string& path) {
  std::unique_ptr<OpenFile> file;
  if (int failure = disk_->open(path, file)) return failed("open", path, failure);
  std::string content;
  char chunk[1 << 16];
  while (true) {
    std::size_t got = 0;
    if (int failure = file->read(chunk, sizeof chunk, got)) return failed("read", path, failure);
    if (got == 0) return content;
    content.append(chunk, got);
  }
}

base::Result<void> LocalFiles::write_atomically(const std::string& path, std::string_view content) {
  std::string temporary;
  std::unique_ptr<OpenFile> file;
  const char* doing = "write";
  int failure = create_temporary(*disk_, parent_of(path), temporary, file);
  if (failure) return failed(doing, path, failure);
  failure = write_and_sync(*file, content);
  if (!failure) {
    doing = "rename a temporary file to";
    failure = disk_->rename(temporary, path);
  }
  if (failure) {
    file.reset();
    (void)disk_->remove_file(temporary);  // the first error is the one to report
    return failed(doing, path, failure);
  }
  return sync_folder(parent_of(path));
}

base::Result<std::vector<FileRecord>> LocalFiles::put_folder(const std::string& source, const std::string& target,
                                                             Take take) {
  TRIREME_ASSIGN(const bool same, same_folder(source, target));
  if (same) return adopt_folder(target);
  TRIREME_TRY(make_folder(target));
  Status from;
  Status to;
  if (int failure = disk_->look_through(source, from)) return failed("access", source, failure);
  if (int failure = disk_->look_through(target, to)) return failed("access", target, failure);
  auto outside = [&](const std::string& path, const Status& folder) -> base::Result<void> {
    if (folder.id != to.id) return {};
    return base::error("{} contains {}, the folder it would be stored in; report a separate folder", source, path);
  };
  TRIREME_ASSIGN(auto files, walk(*disk_, source, Walk::kStore, outside));

  Intake intake(*disk_, source, target, files.size(), Durable::kYes);
  TRIREME_TRY(intake.begin());
  const bool movable = take == Take::kMove && from.id.first == to.id.first;  // on one device
  std::vector<FileRecord> records;
  records.reserve(files.size());
  for (const auto& file : files) {
    TRIREME_ASSIGN(auto record, movable&& file.sole ? intake.move(file) : intake.copy(file));
    records.push_back(std::move(record));
  }
  TRIREME_TRY(intake.place());
  return records;
}

base::Result<bool> LocalFiles::same_folder(const std::string& source, const std::string& target) {
  Status from;
  if (int failure = disk_->look_through(source, from)) {
    if (failure == ENOENT) return base::error("the checkpoint folder {} does not exist", source);
    return failed("access", source, failure);
  }
  if (from.kind != Kind::kFolder) return base::error("{} is not a folder; a checkpoint must be a folder", source);
  Status to;
  const int failure = disk_->look_through(target, to);
  if (failure == ENOENT) return false;
  if (failure) return failed("access", target, failure);
  return from.id == to.id;
}

base::Result<std::vector<FileRecord>> LocalFiles::adopt_folder(const std::string& folder) {
  TRIREME_ASSIGN(auto files, walk(*disk_, folder, Walk::kStore));
  std::unique_ptr<OpenFolder> top;
  if (int failure = disk_->open_folder(folder, top)) return failed("open the folder", folder, failure);
  const bool many = files.size() > kManyFiles;
  std::vector<FileRecord> records;
  records.reserve(files.size());
  std::vector<std::string> folders{folder};
  for (const auto& file : files) {
    const std::string path = join(folder, file.path);
    std::unique_ptr<OpenFile> open;
    if (int failure = disk_->open(path, open)) {
      if (failure == ENOENT) return removed_meanwhile(path);
      return failed("open", path, failure);
    }
    open->start_sync();
    FileRecord record{file.path, 0, {}};
    TRIREME_ASSIGN(record.xxh3, checksum_of(*open, path, record.size));
    // A symbolic link may lead to another file system, which sync_all() does not reach.
    if (!many || !file.sole) {
      if (int failure = open->sync()) return failed("sync", path, failure);
    }
    records.push_back(std::move(record));
    for (std::string above = parent_of(path); above.size() > folder.size(); above = parent_of(above)) {
      folders.push_back(above);
    }
  }
  std::sort(folders.begin(), folders.end());
  folders.erase(std::unique(folders.begin(), folders.end()), folders.end());
  if (many) {
    if (int failure = top->sync_all()) return failed("sync the files in", folder, failure);
  } else {
    for (const auto& each : folders) TRIREME_TRY(sync_folder(each));
  }
  return records;
}

base::Result<void> LocalFiles::get_folder(const std::string& folder, const std::vector<FileRecord>& expected,
                                          const std::string& target) {
  TRIREME_TRY(make_folder(target));
  Intake intake(*disk_, folder, target, expected.size(), Durable::kNo);
  TRIREME_TRY(intake.begin());
  for (const auto& wanted : expected) {
    TRIREME_TRY(check_relative(wanted.path), "{} cannot be read", describe(folder));
    const std::string path = join(folder, wanted.path);
    Status status;
    if (int failure = disk_->look_through(path, status)) {
      if (failure == ENOENT) return base::error("{} is damaged: {} is missing", folder, wanted.path);
      return failed("access", path, failure);
    }
    if (status.size != wanted.size) return differs(path, wanted, {wanted.path, status.size, {}});
    TRIREME_ASSIGN(auto found, intake.copy({wanted.path, status.size}));
    if (!wanted.xxh3.empty() && found.xxh3 != wanted.xxh3) return differs(path, wanted, found);
  }
  return intake.place();
}

base::Result<std::string> LocalFiles::checksum(const std::string& path) {
  std::unique_ptr<OpenFile> file;
  if (int failure = disk_->open(path, file)) return failed("open", path, failure);
  std::uint64_t bytes = 0;
  return checksum_of(*file, path, bytes);
}

base::Result<std::vector<FileEntry>> LocalFiles::list_files(const std::string& folder) {
  TRIREME_ASSIGN(auto found, walk(*disk_, folder, Walk::kAll));
  std::vector<FileEntry> files;
  files.reserve(found.size());
  for (auto& file : found) files.push_back({std::move(file.path), file.size});
  return files;
}

base::Result<std::vector<std::string>> LocalFiles::list_folders(const std::string& folder) {
  std::vector<std::string> names;
  if (int failure = disk_->list(folder, names)) return failed("list", folder, failure);
  std::vector<std::string> folders;
  for (auto& name : names) {
    Status status;
    const int failure = disk_->look_through(join(folder, name), status);
    if (failure == ENOENT || failure == ELOOP) continue;  // removed since it was listed, or a dangling link
    if (failure) return failed("access", join(folder, name), failure);
    if (status.kind != Kind::kFolder) continue;
    folders.push_back(std::move(name));
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

base::Result<void> LocalFiles::make_folder(const std::string& path) {
  Status status;
  if (disk_->look_through(path, status) == 0 && status.kind == Kind::kFolder) return {};
  const std::string parent = parent_of(path);
  if (!parent.empty() && parent != path) TRIREME_TRY(make_folder(parent));
  if (path.ends_with('/')) return {};  // "a/b/" is "a/b", which exists now
  const int failure = disk_->make_folder(path);
  if (failure == EEXIST) {
    // Another process created it first, which is fine, or the name is in use by something else.
    if (disk_->look_through(path, status) == 0 && status.kind == Kind::kFolder) return {};
    return base::error("could not create the folder {}: a file with this name exists; remove it or choose another path",
                       path);
  }
  if (failure) return failed("create the folder", path, failure);
  return sync_folder(parent);
}

base::Result<bool> LocalFiles::move_folder(const std::string& from, const std::string& to) {
  TRIREME_TRY(make_folder(parent_of(to)));
  if (int failure = disk_->rename(from, to)) {
    if (failure == ENOENT || failure == ENOTEMPTY || failure == EEXIST || failure == EXDEV) return false;
    return failed(fmt::format("rename {} to", from), to, failure);
  }
  TRIREME_TRY(sync_folder(parent_of(to)));
  TRIREME_TRY(sync_folder(parent_of(from)));
  return true;
}

base::Result<void> LocalFiles::sync_folder(const std::string& path) {
  std::unique_ptr<OpenFolder> folder;
  if (int failure = disk_->open_folder(path.empty() ? "." : path, folder)) {
    return failed("open the folder", path, failure);
  }
  if (int failure = folder->sync()) return failed("sync the folder", path, failure);
  return {};
}

base::Result<void> LocalFiles::remove_file(const std::string& path) {
  const int failure = disk_->remove_file(path);
  if (failure && failure != ENOENT && failure != ENOTDIR) return failed("remove", path, failure);
  return {};
}

base::Result<void> LocalFiles::remove_folder(const std::string& path) {
  Status status;
  int failure = disk_->look(path, status);
  if (failure == ENOENT || failure == ENOTDIR) return {};
  if (failure) return failed("access", path, failure);
  if (status.kind != Kind::kFolder) return remove_file(path);  // removes a link, not its target
  std::vector<std::string> names;
  failure = disk_->list(path, names);
  if (failure && failure != ENOENT) return failed("list", path, failure);
  for (const auto& name : names) TRIREME_TRY(remove_folder(join(path, name)));
  failure = disk_->remove_folder(path);
  if (failure && failure != ENOENT) return failed("remove", path, failure);
  return {};
}

base::Result<std::string> read_file(const std::string& path) { return LocalFiles().read(path); }
base::Result<void> write_file_atomically(const std::string& path, std::string_view content) {
  return LocalFiles().write_atomically(path, content);
}
base::Result<void> make_folder(const std::string& path) { return LocalFiles().make_folder(path); }
base::Result<void> sync_folder(const std::string& path) { return LocalFiles().sync_folder(path); }
base::Result<std::vector<FileEntry>> list_files(const std::string& folder) { return LocalFiles().list_files(folder); }
base::Result<void> remove_folder(const std::string& path) { return LocalFiles().remove_folder(path); }

}  // namespace trireme::storage
