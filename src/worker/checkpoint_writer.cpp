#include "worker/checkpoint_writer.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/host.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/commit.h"
#include "checkpoint/scratch_folder.h"
#include "checkpoint/state_file.h"
#include "storage/local_files.h"
#include "storage/posix_disk.h"
#include "storage/walk.h"

namespace trireme::worker {
namespace {

namespace fs = std::filesystem;

constexpr auto kCommitPatience = std::chrono::milliseconds(250);
// A commit waits for the slowest rank. After this time the storage refuses writes that would mix two checkpoints.
constexpr auto kNamePatience = std::chrono::seconds(60);

// The state of rank 0 is at the top of the checkpoint, where a single process looks for it. Other ranks have a folder.
std::string state_folder(int rank) { return rank == 0 ? "" : fmt::format("rank_{}", rank); }

// Normalizes different spellings of the same folder, such as a trailing slash.
fs::path plain(const std::string& folder) {
  const fs::path normal = fs::path(folder).lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

}  // namespace

base::Result<CheckpointUploadMode> upload_mode_from(std::string_view name) {
  std::vector<std::string> names;
#define TRIREME_UPLOAD_MODE(mode, text)                \
  if (name == text) return CheckpointUploadMode::mode; \
  names.emplace_back(text);
  TRIREME_CHECKPOINT_UPLOAD_MODES(TRIREME_UPLOAD_MODE)
#undef TRIREME_UPLOAD_MODE
  return base::error("checkpoint_upload_mode = '{}': must be one of {}", name, base::join(names, ", "));
}

CheckpointWriter::CheckpointWriter(const wire::Start& start, std::shared_ptr<storage::Files> files, Done done,
                                   std::shared_ptr<NodeMemory> memory)
    : rank_(start.world_rank),
      attempt_(start.attempt),
      run_id_(start.run_id),
      run_path_(start.path),
      storage_path_(start.storage_path),
      host_(base::host_name()),
      keep_in_memory_(start.checkpoint_config.keep_in_memory),
      max_in_flight_(
          static_cast<std::size_t>(std::max<std::int64_t>(1, start.checkpoint_config.max_uploads_in_flight))),
      files_(std::move(files)),
      memory_(std::move(memory)),
      done_(std::move(done)),
      queue_(max_in_flight_) {
  thread_ = std::jthread([this] {
    while (auto part = queue_.pop()) {
      done_(part->index, write_part(*part));
      part.reset();  // frees the snapshot's buffer before the next part waits for one
      end();
    }
  });
}

CheckpointWriter::~CheckpointWriter() {
  queue_.close();
  thread_.join();
}

base::Result<std::optional<std::string>> CheckpointWriter::name_for(const CheckpointSource& source,
                                                                    const std::optional<std::string>& asked) const {
  std::optional<std::string> name = asked;
  if (source.mode == CheckpointUploadMode::kNoUpload) {
    const fs::path inside = plain(source.folder).lexically_relative(storage_path_);
    name = inside.native();
    if (inside.empty() || inside.has_parent_path() || name->starts_with(".")) {
      return base::error(
          "NO_UPLOAD: the checkpoint {} is not a folder in the run folder {}; store it there, or use SYNC",
          source.folder, files_->describe(storage_path_));
    }
  } else if (!source.upload && !source.folder.empty() && !fs::is_directory(source.folder)) {
    return base::error("the checkpoint folder {} does not exist", source.folder);
  }
  if (name) TRIREME_TRY(checkpoint::check_name(*name));
  return name;
}

// A rank that does not see the driver's marker would store its part where no other process finds it. A local folder is
// checked every time, at the price of two system calls: if the run folder was deleted, it must not be created again
// without the rest of the run.
base::Result<void> CheckpointWriter::check_storage() {
  if (!files_->local()) {
    std::lock_guard lock(mutex_);
    if (storage_checked_) return {};
  }
  const std::string path = storage_path_ + "/" + checkpoint::kMarkerName;
  TRIREME_ASSIGN(bool there, files_->exists(path));
  std::string content;
  if (there) {
    TRIREME_ASSIGN(content, files_->read(path));
  }
  if (content != run_id_) {
    return base::error(
        "rank {} on {} does not see the run's storage {}: {} {} there; storage_path must be a folder that all nodes "
        "share, or remote storage",
        rank_, host_, files_->describe(storage_path_), checkpoint::kMarkerName,
        there ? "belongs to another start of the run" : "does not exist");
  }
  std::lock_guard lock(mutex_);
  storage_checked_ = true;
  return {};
}

// Remote storage has no local folder that could contain it. But the folder may contain the local run folder, with logs
// that grow during the upload, or a mount of the storage, with all previous checkpoints.
base::Result<void> CheckpointWriter::check_outside_of_run(const std::string& folder) const {
  storage::PosixDisk disk;
  storage::Status own;
  const bool here = disk.look_through(run_path_, own) == 0;
  auto veto = [&](const std::string& path, const storage::Status& met) -> base::Result<void> {
    storage::Status marker;
    const std::string marker_path = path + "/" + checkpoint::kMarkerName;
    bool run = here && met.id == own.id;
    if (!run && disk.look_through(marker_path, marker) == 0) {
      TRIREME_ASSIGN(const auto id, storage::read_file(marker_path));
      run = id == run_id_;
    }
    if (!run) return {};
    return base::error("{} contains the run folder {}; report a separate folder", folder, path);
  };
  TRIREME_TRY(storage::walk(disk, folder, storage::Walk::kStore, veto));
  return {};
}

base::Result<void> CheckpointWriter::store(std::int64_t index, const std::string& name, CheckpointSource source) {
  const bool async = source.mode == CheckpointUploadMode::kAsync;
  Part part{index, name, std::move(source)};
  begin(async);
  auto prepare = [&]() -> base::Result<void> {
    TRIREME_TRY(check_storage());
    // The agent copies the files of a snapshot; otherwise they would be written to a disk first.
    const bool in_memory = fits_memory(part.source, index, name);
    if (!part.source.state || !(async || keep_in_memory_ || in_memory)) return {};
    TRIREME_ASSIGN(part.snapshot, snapshots_.take(*part.source.state));
    part.source.state.reset();  // from now on the caller may change its tensors
    std::lock_guard lock(mutex_);
    // If commits stall (a rank never reports), snapshots that wait for them must not fill the memory.
    part.kept = keep_in_memory_ && kept_.size() <= max_in_flight_;
    if (part.kept) kept_[index] = part.snapshot;
    return {};
  };
  if (auto prepared = prepare(); !prepared) {
    done_(index, prepared.error());
    end();
    return prepared;
  }
  if (async) {
    queue_.push(std::move(part));
    return {};
  }
  auto stored = write_part(part);
  base::Result<void> result;
  if (!stored) result = stored.error();
  done_(index, std::move(stored));
  end();
  return result;
}

// If the user reuses a name, the old checkpoint of that name must be committed before its files are replaced. If the
// storage cannot move them aside, they are deleted, so a newer checkpoint must be committed too: the old one may be the
// newest.
void CheckpointWriter::wait_for_name(const Part& part) {
  std::unique_lock lock(mutex_);
  std::erase_if(names_, [&](const auto& each) { return each.second <= committed_; });
  std::int64_t awaited = -1;
  if (const auto before = names_.find(part.name); before != names_.end()) awaited = before->second;
  if (!files_->local() && !names_.empty()) {
    std::int64_t newest = -1;
    for (const auto& [name, index] : names_) newest = std::max(newest, index);
    lock.unlock();
    const auto in_use = files_->exists(storage_path_ + "/" + part.name + "/" + checkpoint::kManifestName);
    lock.lock();
    if (!in_use || *in_use) awaited = newest;
  }
  changed_.wait_for(lock, kNamePatience, [&] { return committed_ >= awaited; });
  std::erase_if(names_, [&](const auto& each) { return each.second <= committed_; });
  names_[part.name] = part.index;
}

// Files that the user stores, and names that may be reused, need the storage itself.
bool CheckpointWriter::fits_memory(const CheckpointSource& source, std::int64_t index, const std::string& name) const {
  return memory_ && !source.upload && source.mode != CheckpointUploadMode::kNoUpload &&
         name == checkpoint::default_name(index);
}

base::Result<CheckpointWriter::Stored> CheckpointWriter::write_part(const Part& part) {
  if (!fits_memory(part.source, part.index, part.name)) return store_part(part);
  auto held = hold_in_memory(part);
  if (held) return held;
  if (!told_of_memory_.exchange(true)) {
    base::log_warning("rank {} stores its files of {} on the driver's machine: {}", rank_, part.name,
                      held.error().message());
  }
  return store_part(part);
}

base::Result<CheckpointWriter::Stored> CheckpointWriter::hold_in_memory(const Part& part) {
  const auto path_of = [](int descriptor) { return fmt::format("/proc/{}/fd/{}", ::getpid(), descriptor); };
  std::map<std::string, std::string> paths;
  if (part.snapshot) {
    const std::string inside = state_folder(rank_);
    for (const auto& [file, descriptor] : part.snapshot->descriptors()) {
      paths[inside.empty() ? file : inside + "/" + file] = path_of(descriptor);
    }
  } else {
    const std::string& folder = part.source.folder;
    TRIREME_TRY(check_outside_of_run(folder));
    storage::PosixDisk disk;
    TRIREME_ASSIGN(const auto found, storage::walk(disk, folder, storage::Walk::kStore));
    for (const auto& file : found) paths[file.path] = fs::absolute(folder + "/" + file.path);
  }
  if (paths.empty()) return store_part(part);
  TRIREME_ASSIGN(auto held, memory_->hold(part.index, attempt_, paths));
  if (part.source.delete_folder && !part.source.folder.empty()) {
    TRIREME_TRY(storage::remove_folder(part.source.folder));
  }
  Stored stored;
  stored.files = std::move(held.files);
  stored.nodes = held.nodes;
  return stored;
}

base::Result<CheckpointWriter::Stored> CheckpointWriter::store_part(const Part& part) {
  const CheckpointSource& source = part.source;
  wait_for_name(part);
  if (part.snapshot || source.state) return write_state(part);
  const std::string target = storage_path_ + "/" + part.name;
  const checkpoint::Origin origin{attempt_, part.index};
  // A folder in the run folder is already the checkpoint itself.
  bool in_place = source.mode == CheckpointUploadMode::kNoUpload;
  if (!in_place && !source.upload && !source.folder.empty()) {
    TRIREME_ASSIGN(in_place, files_->same_folder(source.folder, target));
  }
  Stored stored;
  if (source.upload) {
    TRIREME_TRY(checkpoint::announce(*files_, storage_path_, part.name, origin));
    TRIREME_ASSIGN(auto where, source.upload(part.name));
    if (plain(where) != plain(target)) {
      return base::error("checkpoint_upload_fn must store the checkpoint in {}, but it returned {}",
                         files_->describe(target), where);
    }
    TRIREME_ASSIGN(stored.files, checkpoint::adopt(*files_, storage_path_, part.name, origin));
    if (stored.files.empty()) {
      return base::error("checkpoint_upload_fn returned {} but stored nothing in it", files_->describe(target));
    }
    // Checked only now: the function may create it.
    if (!source.folder.empty() && fs::is_directory(source.folder)) {
      TRIREME_ASSIGN(in_place, files_->same_folder(source.folder, target));
    }
  } else if (source.mode == CheckpointUploadMode::kNoUpload && !files_->local()) {
    TRIREME_ASSIGN(stored.files, files_->adopt_folder(target));
  } else {
    if (!files_->local()) TRIREME_TRY(check_outside_of_run(source.folder));
    const std::string& from = in_place ? target : source.folder;
    const auto take = source.delete_folder ? storage::Take::kMove : storage::Take::kCopy;
    TRIREME_ASSIGN(stored.files, checkpoint::upload(*files_, from, storage_path_, part.name, take, origin));
  }
  if (source.delete_folder && !in_place && !source.folder.empty()) {
    TRIREME_TRY(storage::remove_folder(source.folder));
  }
  return stored;
}

base::Result<CheckpointWriter::Stored> CheckpointWriter::write_state(const Part& part) {
  const std::string inside = state_folder(rank_);
  const std::string prefix = inside.empty() ? "" : inside + "/";
  const checkpoint::Origin origin{attempt_, part.index};
  Stored stored;
  if (files_->local()) {
    TRIREME_ASSIGN(std::string folder, checkpoint::begin(*files_, storage_path_, part.name, origin));
    TRIREME_ASSIGN(stored.files, write_state_files(part, folder + "/" + inside));
    for (auto& file : stored.files) file.path = prefix + file.path;
  } else {
    TRIREME_ASSIGN(const auto scratch, checkpoint::ScratchFolder::make());
    TRIREME_TRY(write_state_files(part, scratch.path() + "/" + inside));
    TRIREME_ASSIGN(stored.files,
                   checkpoint::upload(*files_, scratch.path(), storage_path_, part.name, storage::Take::kMove, origin));
  }
  if (part.kept) {
    for (const auto& [file, descriptor] : part.snapshot->descriptors()) stored.memory[prefix + file] = descriptor;
  }
  return stored;
}

base::Result<std::vector<storage::FileRecord>> CheckpointWriter::write_state_files(const Part& part,
                                                                                   const std::string& folder) {
  const checkpoint::SaveOptions options{.durable = files_->local()};
  if (part.snapshot) return part.snapshot->write(folder, options);
  return checkpoint::save_state(folder, *part.source.state, options);
}

void CheckpointWriter::begin(bool async) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !async || active_ < max_in_flight_; });
  // Snapshots are kept until a later one is committed, which happens at once unless a rank is late. In that case this
  // snapshot is not kept in memory.
  changed_.wait_for(lock, kCommitPatience, [&] { return kept_.size() <= max_in_flight_; });
  ++active_;
}

void CheckpointWriter::end() {
  std::vector<std::function<void()>> callbacks;
  {
    std::lock_guard lock(mutex_);
    if (--active_ == 0) callbacks.swap(when_idle_);
    changed_.notify_all();
  }
  for (const auto& callback : callbacks) callback();
}

void CheckpointWriter::committed(std::int64_t index) {
  std::map<std::int64_t, std::shared_ptr<const checkpoint::Snapshot>> dropped;  // buffers are freed outside of the lock
  std::lock_guard lock(mutex_);
  committed_ = std::max(committed_, index);
  auto newer = kept_.lower_bound(index);
  for (auto it = kept_.begin(); it != newer;) dropped.insert(kept_.extract(it++));
  changed_.notify_all();
}

void CheckpointWriter::wait_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return active_ == 0; });
}

void CheckpointWriter::when_idle(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (active_ > 0) {
      when_idle_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

}  // namespace trireme::worker
