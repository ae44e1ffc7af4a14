#include "agent/checkpoint_memory.h"

#include <unistd.h>

#include <charconv>
#include <new>

namespace trireme::agent {
namespace {

std::int64_t default_limit() {
  return static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) / 4 * static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
}

double megabytes(std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

}  // namespace

base::Result<CheckpointMemory::Name> CheckpointMemory::Name::parse(const std::string& path) {
  const auto run_end = path.find('/');
  const auto index_end = run_end == std::string::npos ? run_end : path.find('/', run_end + 1);
  Name name;
  if (index_end != std::string::npos) {
    const auto parsed = std::from_chars(path.data() + run_end + 1, path.data() + index_end, name.index);
    if (run_end > 0 && parsed.ec == std::errc() && parsed.ptr == path.data() + index_end) {
      name.run = path.substr(0, run_end);
      name.file = path.substr(index_end + 1);
      return name;
    }
  }
  return base::error("'{}' is not a file in memory", path);
}

std::string CheckpointMemory::Name::text() const { return wire::memory_path(run, index, file); }

base::Result<CheckpointMemory::Content> CheckpointMemory::make_room(std::int64_t size, std::int64_t limit) {
  if (limit < 0) limit = default_limit();
  if (size < 0) return base::error("invalid size {}", size);
  const std::int64_t before = used_->fetch_add(size);
  const auto give_back = [used = used_, size] { *used -= size; };
  if (before + size > limit) {
    give_back();
    return base::error(
        "no room for {:.1f} MB: checkpoints in its memory have {:.1f} MB of {:.1f} MB "
        "(CheckpointConfig.node_memory_gb)",
        megabytes(size), megabytes(before), megabytes(limit));
  }
  std::unique_ptr<std::string> bytes;
  // The kernel may refuse what the limit allows.
  try {
    bytes = std::make_unique<std::string>(static_cast<std::size_t>(size), '\0');
  } catch (const std::bad_alloc&) {
    give_back();
    return base::error("no memory for {:.1f} MB", megabytes(size));
  }
  return Content(bytes.release(), [give_back](std::string* content) {
    delete content;
    give_back();
  });
}

base::Result<void> CheckpointMemory::add(Held file) {
  const std::lock_guard lock(mutex_);
  Checkpoint& checkpoint = runs_[file.name.run][file.name.index];
  if (file.attempt < checkpoint.attempt) {
    return base::error("attempt {} is over; attempt {} has stored files of this checkpoint", file.attempt,
                       checkpoint.attempt);
  }
  if (file.attempt > checkpoint.attempt) checkpoint = {file.attempt, {}};
  checkpoint.files[file.name.file] = {std::move(file.content), file.other};
  return {};
}

CheckpointMemory::Content CheckpointMemory::find(const Name& name) const {
  const std::lock_guard lock(mutex_);
  const auto run = runs_.find(name.run);
  if (run == runs_.end()) return nullptr;
  const auto checkpoint = run->second.find(name.index);
  if (checkpoint == run->second.end()) return nullptr;
  const auto file = checkpoint->second.files.find(name.file);
  return file == checkpoint->second.files.end() ? nullptr : file->second.content;
}

wire::MemoryListing CheckpointMemory::list(const std::string& run_id, std::int64_t index) const {
  const std::lock_guard lock(mutex_);
  wire::MemoryListing listing;
  const auto run = runs_.find(run_id);
  if (run == runs_.end()) return listing;
  const auto checkpoint = run->second.find(index);
  if (checkpoint == run->second.end()) return listing;
  listing.attempt = checkpoint->second.attempt;
  for (const auto& [file, held] : checkpoint->second.files) {
    listing.sizes[file] = static_cast<std::int64_t>(held.content->size());
  }
  return listing;
}

void CheckpointMemory::drop(const std::string& run_id, std::int64_t index) {
  std::map<std::int64_t, Checkpoint> dropped;  // its memory is freed outside of the lock
  const std::lock_guard lock(mutex_);
  const auto run = runs_.find(run_id);
  if (run == runs_.end()) return;
  auto& checkpoints = run->second;
  for (auto it = checkpoints.begin(); it != checkpoints.end() && it->first < index;) {
    dropped.insert(checkpoints.extract(it++));
  }
  if (checkpoints.empty()) runs_.erase(run);
}

void CheckpointMemory::set_other(const Name& name, int attempt, int agent) {
  const std::lock_guard lock(mutex_);
  const auto run = runs_.find(name.run);
  if (run == runs_.end()) return;
  const auto checkpoint = run->second.find(name.index);
  if (checkpoint == run->second.end() || checkpoint->second.attempt != attempt) return;
  const auto file = checkpoint->second.files.find(name.file);
  if (file != checkpoint->second.files.end()) file->second.other = agent;
}

std::vector<CheckpointMemory::Held> CheckpointMemory::without_copy(const std::set<int>& agents) const {
  const std::lock_guard lock(mutex_);
  std::vector<Held> found;
  for (const auto& [run, checkpoints] : runs_) {
    for (const auto& [index, checkpoint] : checkpoints) {
      for (const auto& [path, file] : checkpoint.files) {
        if (agents.contains(file.other)) continue;
        found.push_back({{run, index, path}, checkpoint.attempt, file.content, file.other});
      }
    }
  }
  return found;
}

std::vector<int> copy_targets(int self, const std::set<int>& agents) {
  std::vector<int> targets;
  for (auto it = agents.upper_bound(self); it != agents.end(); ++it) targets.push_back(*it);
  for (auto it = agents.begin(); it != agents.end() && *it < self; ++it) targets.push_back(*it);
  return targets;
}

}  // namespace trireme::agent
