#include "base/text.h"
#include "checkpoint/commit.h"
#include "storage/open_files.h"
#include "worker/check_metrics.h"
#include "worker/session.h"

// Reports, and the checkpoints that they include.

namespace trireme::worker {

Result<std::shared_ptr<CheckpointWriter>> Session::writer() {
  std::lock_guard lock(mutex_);
  if (writer_) return writer_;
  if (!files_) {
    std::string path;
    TRIREME_ASSIGN(files_,
                   storage::open_files(start_.storage_uri.empty() ? start_.storage_path : start_.storage_uri, path));
  }
  auto done = [this](std::int64_t index, Result<CheckpointWriter::Stored> stored) {
    wire::UploadDone message;
    message.index = index;
    if (stored) {
      message.files = checkpoint::to_list(stored->files);
      message.memory = std::move(stored->memory);
      message.nodes = stored->nodes;
    } else {
      message.failure = base::shortened(stored.error().message(), kLongestText);
    }
    auto posted = post(message);
    if (posted) return;
    wire::UploadDone refused;
    refused.index = index;
    refused.failure = fmt::format("the list of its files: {}; store fewer files", posted.error().message());
    tell(refused);
  };
  const bool in_memory = start_.checkpoint_config.node_memory_gb != 0.0;
  writer_ = std::make_shared<CheckpointWriter>(start_, files_, std::move(done), in_memory ? memory_ : nullptr);
  return writer_;
}

// The controller requests a stop and waits until no upload is in flight. Under the mutex.
void Session::drain() {
  if (writer_) {
    writer_->when_idle([this] { tell(wire::Drained{}); });
  } else {
    tell(wire::Drained{});
  }
}

Result<std::optional<std::string>> Session::report(Metrics metrics, std::optional<CheckpointSource> checkpoint,
                                                   ReportOptions options) {
  TRIREME_TRY(check_metrics(metrics, "metrics"));
  wire::Report report;
  report.metrics = std::move(metrics);
  report.data = std::move(options.data);
  report.positions = std::move(options.positions);
  if (options.checkpoint_name) TRIREME_TRY(checkpoint::check_name(*options.checkpoint_name));
  std::shared_ptr<CheckpointWriter> writer;
  std::optional<std::string> chosen_name;
  if (checkpoint) {
    TRIREME_ASSIGN(writer, this->writer());
    // Validate before the report counts.
    TRIREME_ASSIGN(chosen_name, writer->name_for(*checkpoint, options.checkpoint_name));
    report.validation = std::move(options.validation);
  }
  // Before the report that counts their rows.
  send_data_logs();
  std::int64_t index = 0;
  std::string name;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return next_report_ - acked_ < kReportWindow || !closed().empty(); });
    if (const auto why = closed(); !why.empty()) return base::error("{}", why);
    // A thread that the function of an earlier attempt left behind; the next attempt has not started.
    if (ready_) return base::error("{}", kCancelled);
    index = report.index = next_report_;
    if (checkpoint) report.checkpoint = name = chosen_name.value_or(checkpoint::default_name(index));
    // Under the lock that assigned the number: reports of several threads are sent in the order of their numbers, and
    // the controller accepts no other order.
    TRIREME_TRY(post(std::move(report)), "the report");
    ++next_report_;  // a report that is too large does not count
  }
  if (!checkpoint) return std::optional<std::string>();
  const CheckpointUploadMode mode = checkpoint->mode;
  TRIREME_TRY(writer->store(index, name, *std::move(checkpoint)), "{} could not be stored", name);
  const std::string folder = start_.storage_path + "/" + name;
  remember(index, folder, mode);
  TRIREME_TRY(leave_with(index, *writer));
  return std::optional(folder);
}

void Session::remember(std::int64_t index, const std::string& folder, CheckpointUploadMode mode) {
  std::lock_guard lock(mutex_);
  if (mode == CheckpointUploadMode::kAsync) {
    on_their_way_[index] = folder;
  } else if (index > newest_.first) {
    newest_ = {index, folder};
  }
}

std::optional<std::string> Session::newest_checkpoint() {
  // A forked child has no other thread, and the lock may have been held when it was forked.
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!forked()) lock.lock();
  // Commits arrive in the order of the reports.
  const auto first_uncommitted = on_their_way_.upper_bound(committed_);
  if (first_uncommitted != on_their_way_.begin()) {
    const auto& [index, folder] = *std::prev(first_uncommitted);
    if (index > newest_.first) newest_ = {index, folder};
    on_their_way_.erase(on_their_way_.begin(), first_uncommitted);
  }
  if (newest_.first < 0) return std::nullopt;
  return newest_.second;
}

// The gang is resized with this checkpoint: later work would be discarded.
Result<void> Session::leave_with(std::int64_t index, CheckpointWriter& writer) {
  {
    std::lock_guard lock(mutex_);
    if (leave_at_ < 0 || index < leave_at_) return {};
  }
  writer.wait_idle();
  wait_for_cancel();
  std::lock_guard lock(mutex_);
  return base::error("{}", closed().empty() ? kCancelled : closed());
}

}  // namespace trireme::worker
