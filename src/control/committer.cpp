#include "control/committer.h"

#include <unistd.h>

#include <filesystem>

#include "checkpoint/commit.h"
#include "checkpoint/replaced.h"
#include "storage/local_files.h"
#include "storage/run_names.h"

namespace trireme::control {
namespace {

// More than are ever queued: a run has one or two commits in progress.
constexpr std::size_t kMaxJobs = std::size_t{1} << 20;

}  // namespace

Committer::Committer(Place place, Warn warn) : place_(std::move(place)), warn_(std::move(warn)), jobs_(kMaxJobs) {
  thread_ = std::jthread([this] {
    while (auto job = jobs_.pop()) (*job)();
  });
}

Committer::~Committer() {
  jobs_.close();
  thread_.join();
}

void Committer::commit(ReadyCheckpoint ready, int attempt, double wall, base::Fd event_log,
                       std::optional<std::string> collected, Ended ended) {
  auto log = std::make_shared<base::Fd>(std::move(event_log));  // shared, because std::function must be copyable
  jobs_.push([this, ready = std::move(ready), attempt, wall, log, collected = std::move(collected),
              ended = std::move(ended)]() mutable {
    if (::fdatasync(log->get()) != 0) {
      const int failure = errno;
      CommitEnded end{std::move(ready), {}, base::system_error("could not sync the event log", failure).message()};
      return ended(std::move(end));
    }
    auto end = write_manifest(std::move(ready), attempt, wall, collected);
    if (collected) warn_of(storage::remove_folder(*collected), "could not remove a scratch folder");
    ended(std::move(end));
  });
}

CommitEnded Committer::write_manifest(ReadyCheckpoint ready, int attempt, double wall,
                                      const std::optional<std::string>& collected) {
  CommitEnded end{std::move(ready), {}, {}};
  auto write = [&]() -> base::Result<void> {
    std::map<int, std::vector<storage::FileRecord>> by_rank;
    for (const auto& [rank, files] : end.checkpoint.files) {
      TRIREME_ASSIGN(by_rank[rank], checkpoint::files_from(files), "the files of rank {}", rank);
    }
    const std::string& name = end.checkpoint.name;
    if (collected) {
      const checkpoint::Origin origin{attempt, end.checkpoint.index};
      TRIREME_TRY(
          checkpoint::upload(*place_.files, *collected, place_.storage_path, name, storage::Take::kMove, origin));
    }
    TRIREME_ASSIGN(auto merged, checkpoint::merge(*place_.files, place_.storage_path, name, by_rank));
    end.conflicts = std::move(merged.conflicts);
    checkpoint::Manifest manifest;
    manifest.index = end.checkpoint.index;
    manifest.attempt = attempt;
    manifest.time = wall;
    manifest.metrics = end.checkpoint.metrics;
    manifest.validation = end.checkpoint.validation;
    manifest.positions = end.checkpoint.positions;
    if (!manifest.validation.is_null()) manifest.status = checkpoint::Status::kPendingValidation;
    manifest.files = std::move(merged.files);
    TRIREME_TRY(checkpoint::commit(*place_.files, place_.storage_path, name, std::move(manifest)));
    return {};
  };
  if (auto written = write(); !written) end.failure = written.error().message();
  end.checkpoint.files.clear();
  return end;
}

void Committer::update(KeptCheckpoint kept) {
  jobs_.push([this, kept = std::move(kept)] {
    auto rewrite = [&]() -> base::Result<void> {
      const std::string path = place_.storage_path + "/" + kept.name + "/" + checkpoint::kManifestName;
      TRIREME_ASSIGN(auto text, place_.files->read(path));
      TRIREME_ASSIGN(auto manifest, checkpoint::decode_manifest(text), "{}", path);
      if (manifest.attempt != kept.attempt || manifest.index != kept.index) return {};
      manifest.metrics = kept.metrics;
      manifest.status = kept.status;
      manifest.validation = kept.validation;
      return checkpoint::update(*place_.files, place_.storage_path, kept.name, manifest);
    };
    warn_of(rewrite(), "could not store the result of a validation");
  });
}

void Committer::remove(std::string name, checkpoint::Origin origin) {
  jobs_.push([this, name = std::move(name), origin] {
    warn_of(checkpoint::remove(*place_.files, place_.storage_path, name, origin), "could not remove an old checkpoint");
  });
}

void Committer::end_reuse() {
  jobs_.push([this] {
    warn_of(checkpoint::forget_dropped(*place_.files, place_.storage_path), "could not remove an old checkpoint");
    warn_of(checkpoint::bring_back_replaced(*place_.files, place_.storage_path),
            "could not move a checkpoint back whose name was about to be reused");
  });
}

void Committer::mirror(bool all) {
  if (place_.files->local()) return;
  jobs_.push([this, all] { warn_of(mirror_now(all), "could not store the run's own files"); });
}

base::Result<void> Committer::mirror_now(bool all) const {
  std::vector<std::string> names{storage::kRunFile, storage::kEventsFile};
  if (all) {
    TRIREME_TRY(place_.files->put_folder(place_.path + "/logs", place_.storage_path + "/logs", storage::Take::kCopy));
    for (const char* name : {storage::kMetricsTable, storage::kMetricsLines, storage::kReturnValueFile}) {
      if (std::filesystem::exists(place_.path + "/" + name)) names.emplace_back(name);
    }
  }
  for (const auto& name : names) {
    TRIREME_ASSIGN(auto content, storage::read_file(place_.path + "/" + name));
    TRIREME_TRY(place_.files->write_atomically(place_.storage_path + "/" + name, content));
  }
  return {};
}

base::Result<std::optional<std::string>> Committer::settle_now(const std::optional<std::string>& checkpoint) const {
  TRIREME_TRY(checkpoint::remove_unfinished(*place_.files, place_.storage_path));
  if (!checkpoint) return checkpoint;
  TRIREME_ASSIGN(auto path, checkpoint::path_after_bringing_back(*place_.files, place_.storage_path, *checkpoint));
  return std::optional(std::move(path));
}

void Committer::settle(std::optional<std::string> checkpoint, Settled settled) {
  jobs_.push(
      [this, checkpoint = std::move(checkpoint), settled = std::move(settled)] { settled(settle_now(checkpoint)); });
}

void Committer::then(std::function<void()> job) { jobs_.push(std::move(job)); }

void Committer::warn_of(const base::Result<void>& result, std::string_view what) const {
  if (!result) warn_(fmt::format("{}: {}", what, result.error().message()));
}

}  // namespace trireme::control
