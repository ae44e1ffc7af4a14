#include "storage/intake.h"

#include <cerrno>

#include "base/text.h"
#include "storage/digest.h"
#include "storage/disk_error.h"
#include "storage/paths.h"

namespace trireme::storage {
namespace {

// Fits in the CPU cache, so that a block is still cached when it is hashed and written. Small files use less.
constexpr std::size_t kBlock = std::size_t{1} << 20;
constexpr std::size_t kSmallBlock = std::size_t{1} << 16;

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return "";
  return path.substr(0, slash);
}

std::string size_text(std::uint64_t bytes) {
  if (bytes >= 1000000000) return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
  if (bytes >= 1000000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  return base::count_of(bytes, "byte");
}

// Calls `make` with an unused name. A process on another machine that shares the folder may have the same pid.
template <typename Make>
int with_temporary_name(const std::string& folder, std::string& path, Make make) {
  while (true) {
    path = temporary_in(folder);
    const int failure = make();
    if (failure != EEXIST) return failure;
  }
}

base::Error changed_meanwhile(const std::string& path, std::uint64_t before, std::uint64_t now) {
  return base::error(
      "{} changed while it was being stored: its size was {} and is now {}; write all files before report()", path,
      size_text(before), size_text(now));
}

}  // namespace

base::Error not_stored(const FoundFile& file, const std::string& target, int error_number) {
  return failed(fmt::format("store '{}' ({}) as", file.path, size_text(file.size)), target, error_number);
}

int create_temporary(Disk& disk, const std::string& folder, std::string& path, std::unique_ptr<OpenFile>& file) {
  return with_temporary_name(folder, path, [&] { return disk.create(path, file); });
}

base::Result<std::string> checksum_of(OpenFile& file, const std::string& path, std::uint64_t& bytes) {
  Digest digest;
  std::size_t size = kSmallBlock;
  auto block = std::make_unique_for_overwrite<char[]>(size);
  bytes = 0;
  while (true) {
    std::size_t got = 0;
    if (int failure = file.read(block.get(), size, got)) return failed("read", path, failure);
    if (got == 0) return digest.hex();
    digest.add({block.get(), got});
    bytes += got;
    if (got == size && size < kBlock) {
      size = kBlock;
      block = std::make_unique_for_overwrite<char[]>(size);
    }
  }
}

Intake::Intake(Disk& disk, std::string source, std::string target, std::size_t count, Durable durable)
    : disk_(disk), source_(std::move(source)), target_(std::move(target)), count_(count), durable_(durable) {}

Intake::~Intake() {
  for (auto& each : waiting_) {
    each.file.reset();
    // If this fails too, the file stays under a temporary name, which is never read, until the folder is cleaned up.
    (void)disk_.remove_file(each.temporary);
  }
}

base::Result<void> Intake::begin() {
  folders_.insert("");
  if (durable_ == Durable::kNo) return {};
  if (int failure = disk_.open_folder(target_, folder_)) return failed("open the folder", target_, failure);
  return {};
}

base::Result<void> Intake::make_folders_of(const std::string& relative) {
  const std::string folder = folder_of(relative);
  if (folders_.contains(folder)) return {};
  TRIREME_TRY(make_folders_of(folder));
  const std::string path = target_ + "/" + folder;
  if (int failure = disk_.make_folder(path); failure && failure != EEXIST) {
    return failed("create the folder", path, failure);
  }
  folders_.insert(folder);
  return {};
}

base::Result<std::string> Intake::read_through(OpenFile& from, const FoundFile& file, OpenFile* to) {
  const std::string path = source_ + "/" + file.path;
  if (const std::size_t fitting = file.size < kSmallBlock ? kSmallBlock : kBlock; block_size_ < fitting) {
    block_size_ = fitting;
    block_ = std::make_unique_for_overwrite<char[]>(block_size_);
  }
  Digest digest;
  std::uint64_t size = 0;
  while (true) {
    std::size_t got = 0;
    if (int failure = from.read(block_.get(), block_size_, got)) return failed("read", path, failure);
    if (got == 0) break;
    size += got;
    digest.add({block_.get(), got});
    if (!to) continue;
    if (int failure = to->write({block_.get(), got})) return not_stored(file, target_ + "/" + file.path, failure);
  }
  if (size != file.size) return changed_meanwhile(path, file.size, size);
  return digest.hex();
}

base::Result<FileRecord> Intake::copy(const FoundFile& file) {
  const std::string path = source_ + "/" + file.path;
  const std::string final = target_ + "/" + file.path;
  std::unique_ptr<OpenFile> from;
  if (int failure = disk_.open(path, from)) {
    if (failure == ENOENT) return removed_meanwhile(path);
    return failed("open", path, failure);
  }
  TRIREME_TRY(make_folders_of(file.path));
  Waiting copy{.temporary = {}, .final = final, .moved_from = {}, .file = nullptr};
  std::unique_ptr<OpenFile> to;
  if (int failure = create_temporary(disk_, folder_of(final), copy.temporary, to)) {
    return not_stored(file, final, failure);
  }
  waiting_.push_back(std::move(copy));
  TRIREME_ASSIGN(auto digest, read_through(*from, file, to.get()));
  if (durable_ == Durable::kYes && !many()) {
    to->start_sync();
    waiting_.back().file = std::move(to);
  } else if (int failure = to->close()) {
    return not_stored(file, final, failure);
  }
  return FileRecord{file.path, file.size, std::move(digest)};
}

base::Result<FileRecord> Intake::move(const FoundFile& file) {
  const std::string path = source_ + "/" + file.path;
  Waiting moved{.temporary = {}, .final = target_ + "/" + file.path, .moved_from = path, .file = nullptr};
  TRIREME_TRY(make_folders_of(file.path));
  if (with_temporary_name(folder_of(moved.final), moved.temporary, [&] { return disk_.link(path, moved.temporary); })) {
    return copy(file);
  }
  const std::string linked = moved.temporary;
  waiting_.push_back(std::move(moved));
  std::unique_ptr<OpenFile> from;
  if (int failure = disk_.open(linked, from)) return failed("open", path, failure);
  from->start_sync();
  TRIREME_ASSIGN(auto digest, read_through(*from, file, nullptr));
  if (!many()) waiting_.back().file = std::move(from);
  return FileRecord{file.path, file.size, std::move(digest)};
}

base::Result<void> Intake::place() {
  if (durable_ == Durable::kYes) TRIREME_TRY(sync_files());
  TRIREME_TRY(rename_files());
  if (durable_ == Durable::kYes) TRIREME_TRY(sync_folders());
  for (const auto& each : waiting_) {
    // Best effort: the source may stay.
    if (!each.moved_from.empty()) (void)disk_.remove_file(each.moved_from);
  }
  waiting_.clear();
  return {};
}

base::Result<void> Intake::sync_files() {
  if (many()) {
    if (int failure = folder_->sync_all()) return failed("sync the files stored in", target_, failure);
    return {};
  }
  for (auto& each : waiting_) {
    if (int failure = each.file->sync()) return failed("sync", each.final, failure);
    if (int failure = each.file->close()) return failed("sync", each.final, failure);
    each.file.reset();
  }
  return {};
}

base::Result<void> Intake::rename_files() {
  for (const auto& each : waiting_) {
    if (int failure = disk_.rename(each.temporary, each.final)) {
      if (failure == ENOENT)
        return base::error("{} was removed while files were being stored in it", folder_of(each.final));
      return failed("rename a temporary file to", each.final, failure);
    }
  }
  return {};
}

base::Result<void> Intake::sync_folders() {
  if (folders_.size() > kManyFiles) {
    if (int failure = folder_->sync_all()) return failed("sync the file names in", target_, failure);
    return {};
  }
  for (const auto& each : folders_) {
    const std::string path = each.empty() ? target_ : target_ + "/" + each;
    std::unique_ptr<OpenFolder> folder;
    int failure = disk_.open_folder(path, folder);
    if (!failure) failure = folder->sync();
    if (failure) return failed("sync the folder", path, failure);
  }
  return {};
}

}  // namespace trireme::storage
