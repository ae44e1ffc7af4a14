#include "trireme/context.h"

#include <filesystem>

#include "api/train_session.h"
#include "api/trainer_datasets.h"
#include "base/json.h"
#include "storage/open_files.h"

namespace trireme {
namespace api {
namespace {

// The API of the training function is free functions; they use this state.
Current* g_current = nullptr;

// Adds the metadata of the run to a checkpoint. Existing metadata of the checkpoint takes precedence.
void attach_metadata(Dict metadata, Checkpoint checkpoint) {
  if (metadata.empty() || checkpoint.state() || !std::filesystem::is_directory(checkpoint.path())) return;
  for (const auto& [key, value] : checkpoint.get_metadata()) metadata[key] = value;
  checkpoint.set_metadata(metadata);
}

worker::CheckpointSource source_of(const Checkpoint& checkpoint, const ReportOptions& options) {
  worker::CheckpointSource source;
  source.mode = options.checkpoint_upload_mode;
  if (checkpoint.state()) {
    source.state = *checkpoint.state();
  } else {
    source.folder = checkpoint.path();
    const bool standard = options.checkpoint_upload_mode == CheckpointUploadMode::kAsync;
    source.delete_folder = options.delete_local_checkpoint_after_upload.value_or(standard);
  }
  return source;
}

}  // namespace

Checkpoint checkpoint_in_storage(const wire::Start& start, const std::string& path) {
  if (start.storage_uri.empty()) return Checkpoint(path);
  return Checkpoint(storage::child_of(start.storage_uri, std::filesystem::path(path).filename()));
}

Current& current(const char* caller) {
  current_values(caller);
  if (g_current->session && g_current->session->forked()) {
    throw std::runtime_error(fmt::format(
        "{}() in a process that was forked from the worker (pid {}): only the worker itself is connected to the run; "
        "send the values to it",
        caller, g_current->session->pid()));
  }
  return *g_current;
}

const Current& current_values(const char* caller) {
  if (!g_current) {
    throw std::runtime_error(fmt::format(
        "{}() cannot be used outside of a training function; call it in the function passed to a trainer", caller));
  }
  return *g_current;
}

Current* current_if_any() { return g_current; }

std::unique_lock<std::mutex> Current::lock() const {
  std::unique_lock lock(*mutex, std::defer_lock);
  if (!session || !session->forked()) lock.lock();
  return lock;
}

void throw_error(const base::Error& error) {
  if (g_current && g_current->session && g_current->session->cancelled()) throw Interrupted{};
  throw std::runtime_error(error.message());
}

CurrentScope::CurrentScope(Current& current) {
  TRIREME_CHECK(!g_current, "a training function is already running in this process");
  g_current = &current;
}

CurrentScope::~CurrentScope() { g_current = nullptr; }

Context context_of(const wire::Start& start) {
  Context context;
#define TRIREME_COPY(type, name, standard, doc) context.name = start.name;
  TRIREME_CONTEXT(TRIREME_COPY)
#undef TRIREME_COPY
  return context;
}

}  // namespace api

const Context& context() { return api::current_values("context").context; }

void report(const Metrics& metrics, const std::optional<Checkpoint>& checkpoint, const ReportOptions& options) {
  auto& current = api::current("report");
  if (!current.session) {
    if (checkpoint && !checkpoint->state() && !std::filesystem::is_directory(checkpoint->path())) {
      throw std::runtime_error(fmt::format("the checkpoint folder {} does not exist", checkpoint->path()));
    }
    const auto lock = current.lock();
    current.metrics = metrics;
    if (checkpoint) current.checkpoint = checkpoint;
    ++current.reports;
    return;
  }
  std::optional<worker::CheckpointSource> source;
  if (checkpoint) {
    api::attach_metadata(current.context.metadata, *checkpoint);
    source = api::source_of(*checkpoint, options);
  }
  worker::ReportOptions told{.checkpoint_name = options.checkpoint_dir_name};
  // At every report, because other ranks may report the checkpoint: samples are logged up to here, and positions are
  // compared.
  told.positions = api::positions_now(current);
  if (current.shards) told.data = current.shards->totals();
  api::value_or_throw(current.session->report(metrics, std::move(source), std::move(told)));
}

std::vector<ReportedCheckpoint> get_all_reported_checkpoints(std::optional<double> timeout_s) {
  auto& current = api::current("get_all_reported_checkpoints");
  std::vector<ReportedCheckpoint> reported;
  if (!current.session) return reported;
  std::optional<base::Seconds> timeout;
  if (timeout_s) timeout = base::Seconds(*timeout_s);
  for (const auto& each : api::value_or_throw(current.session->list_checkpoints(false, timeout))) {
    reported.push_back({api::checkpoint_in_storage(current.session->start(), each["path"].as_string()),
                        each["metrics"].as_dict(), each["status"].as_string()});
  }
  return reported;
}

std::optional<Checkpoint> get_checkpoint() {
  const auto& current = api::current_values("get_checkpoint");
  const auto stored = current.session ? current.session->newest_checkpoint() : std::nullopt;
  if (stored) return api::checkpoint_in_storage(current.session->start(), *stored);
  const auto lock = current.lock();
  return current.checkpoint;
}

void check_interrupted() {
  const auto& current = api::current_values("check_interrupted");
  if (current.session && current.session->cancelled()) throw Interrupted{};
}

std::optional<PreemptionInfo> get_preemption_info() {
  auto& current = api::current("get_preemption_info");
  if (!current.session) return std::nullopt;
  std::optional<std::string> mine;
  if (current.context.world_rank == 0) {
    auto known = current.session->preemption();
    mine = base::to_json(known ? worker::to_dict(*known) : Dict());
  }
  const std::string sent = api::value_or_throw(current.session->broadcast(std::move(mine)));
  const Dict told = api::value_or_throw(base::parse_json_dict(sent));
  if (told.empty()) return std::nullopt;
  PreemptionInfo info{told["deadline"].as_double(), {}, told["why"].as_string()};
  for (const auto& [host, ranks] : told["nodes"].as_dict()) {
    for (const auto& rank : ranks.as_list()) info.ranks_by_host[host].push_back(static_cast<int>(rank.as_int()));
  }
  return info;
}

namespace collective {

void barrier() {
  auto& current = api::current("collective::barrier");
  if (current.session) api::value_or_throw(current.session->barrier());
}

std::string broadcast_from_rank_zero(const std::string& data) {
  auto& current = api::current("collective::broadcast_from_rank_zero");
  if (!current.session) return data;
  std::optional<std::string> given;
  if (current.context.world_rank == 0) given = data;
  return api::value_or_throw(current.session->broadcast(std::move(given)));
}

}  // namespace collective
}  // namespace trireme
