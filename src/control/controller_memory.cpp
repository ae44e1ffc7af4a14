#include <algorithm>
#include <asio/post.hpp>

#include "base/log.h"
#include "checkpoint/manifest.h"
#include "control/controller.h"
#include "storage/local_files.h"

// Checkpoints that are committed while only nodes hold them, and copied to the storage afterwards.

namespace trireme::control {

std::vector<storage::FileRecord> files_in_memory(const ReadyCheckpoint& ready) {
  std::vector<storage::FileRecord> files;
  for (const auto& [rank, list] : ready.files) {
    auto records = ready.nodes.contains(rank) ? checkpoint::files_from(list) : std::vector<storage::FileRecord>();
    // Of an invalid list, nothing is copied; the commit then reports the error.
    if (records) files.insert(files.end(), records->begin(), records->end());
  }
  return files;
}

void Controller::commit_from_memory(ReadyCheckpoint made, base::Fd event_log) {
  auto log = std::make_shared<base::Fd>(std::move(event_log));  // shared, because std::function must be copyable
  const auto ready = std::make_shared<const ReadyCheckpoint>(std::move(made));
  const MemoryCommit commit{ready, state_.attempt, log, clock_.now(), ready->in_memory() && waiting_commits_ == 0};
  if (!commit.in_memory) ++waiting_commits_;
  collector_->collect(
      {{commit.attempt, ready->index}, files_in_memory(*ready)}, [this, commit](base::Result<std::string> folder) {
        asio::post(io_, [this, commit, folder = std::move(folder)] { store_collected(commit, folder); });
      });
  // Two nodes hold the files, or one if there is no other: a restart can resume from it.
  if (commit.in_memory) ended(CommitEnded{*ready, {}, {}, true});
}

void Controller::store_collected(const MemoryCommit& commit, const base::Result<std::string>& folder) {
  const auto& ready = commit.ready;
  const checkpoint::Origin origin{commit.attempt, ready->index};
  if (collector_->forgotten(origin)) {
    if (!folder) return;
    auto removed = storage::remove_folder(*folder);
    if (!removed) base::log_warning("{}", removed.error().message());
    return;
  }
  const auto lost = [this, ready](std::string why) {
    handle(CheckpointLost{ready->index, ready->name, std::move(why)});
  };
  if (!folder) {
    if (commit.in_memory) return lost(folder.error().message());
    --waiting_commits_;
    return ended(CommitEnded{*ready, {}, folder.error().message()});
  }
  std::int64_t bytes = 0;
  for (const auto& file : files_in_memory(*ready)) bytes += static_cast<std::int64_t>(file.size);
  const auto stored = [this, lost, bytes, in_memory = commit.in_memory, began = commit.began](CommitEnded end) {
    if (!in_memory) {
      asio::post(io_, [this] { --waiting_commits_; });
      return ended(std::move(end));
    }
    asio::post(io_, [this, lost, bytes, began, end = std::move(end)] {
      if (end.failure) return lost(*end.failure);
      const double seconds = base::Seconds(clock_.now() - began).count();
      note_stored(end.checkpoint.index);
      handle(CheckpointStored{end.checkpoint.index, end.checkpoint.name, bytes, seconds});
      free_memory();
    });
  };
  committer_->commit(*ready, commit.attempt, clock_.wall(), std::move(*commit.event_log), *folder, stored);
}

// Otherwise checkpoints would be committed that never reach the storage.
void Controller::use_memory(const std::string& unreachable) {
  const bool wanted = plan_.rules.checkpoints.node_memory_gb != 0.0;
  if (wanted && memory_used_ && !unreachable.empty()) {
    append({{"event", "warning"},
            {"message", fmt::format("nodes hold no checkpoints in memory, because the driver cannot connect to their "
                                    "agents: {}; open their ports (engine option ports)",
                                    unreachable)}});
  }
  memory_used_ = unreachable.empty();
}

void Controller::note_stored(std::int64_t index) {
  for (auto point = resume_points_.begin(); point != resume_points_.end(); ++point) {
    if (point->held.origin.index != index) continue;
    point->stored = true;
    resume_points_.erase(resume_points_.begin(), point);  // nothing before it is needed any more
    return;
  }
}

// Nodes hold the newest checkpoint, which restarted workers read, and those that are not stored yet.
void Controller::free_memory() {
  if (!collector_ || checkpoint_index_ < 0) return;
  std::int64_t needed = checkpoint_index_;
  if (!state_.collecting.empty()) needed = std::min(needed, *state_.collecting.begin());
  if (needed <= freed_below_) return;
  freed_below_ = needed;
  collector_->drop_below(needed);
}

std::size_t Controller::newest_available(MemoryCollector& collector, const std::vector<ResumePoint>& points,
                                         std::string& why) {
  for (std::size_t point = points.size() - 1; point > 0; --point) {
    if (points[point].stored) return point;
    const auto there = collector.available(points[point].held);
    if (there) return point;
    if (why.empty()) why = there.error().message();
  }
  return 0;
}

EarlierStart Controller::resume_earlier(checkpoint::Origin origin, const std::string& why) {
  const auto name_of = [](const ResumePoint& each) {
    return each.path ? each.path->substr(each.path->rfind('/') + 1) : std::string("the beginning");
  };
  const std::string newest = name_of(resume_points_.back());
  const auto found = std::find_if(resume_points_.begin(), resume_points_.end(),
                                  [&](const ResumePoint& each) { return each.held.origin == origin; });
  // It is not listed any more if a later one has been stored in the meantime, which is the first now.
  const auto point = static_cast<std::size_t>(found == resume_points_.end() ? 0 : found - resume_points_.begin());
  for (std::size_t lost = point + 1; lost < resume_points_.size(); ++lost) {
    collector_->forget(resume_points_[lost].held.origin);
  }
  resume_points_.resize(point + 1);
  const ResumePoint& from = resume_points_.back();
  checkpoint_ = from.path;
  checkpoint_in_storage_ = from.in_storage;
  checkpoint_index_ = from.held.origin.index;
  // The next attempt reports the lost numbers again: a call that still waits must not free those.
  freed_below_ = std::max<std::int64_t>(0, checkpoint_index_);
  collector_->drop_below(freed_below_);
  return {
      checkpoint_index_ + 1, from.positions,
      fmt::format("{} is lost with the nodes that held it: {}; the run resumes from {}", newest, why, name_of(from))};
}

}  // namespace trireme::control
