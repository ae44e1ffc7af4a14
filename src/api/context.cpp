#include "trireme/context.h"

#include <filesystem>

#include "api/current.h"

namespace trireme {
namespace api {
namespace {

// The training function calls free functions, as the API has them: this is what they find.
Current* g_current = nullptr;

// What the user attached to the run goes along with its checkpoints; what a checkpoint has of its own stands.
void attach_metadata(Dict metadata, Checkpoint checkpoint) {
  if (metadata.empty() || !std::filesystem::is_directory(checkpoint.path())) return;
  for (const auto& [key, value] : checkpoint.get_metadata()) metadata[key] = value;
  checkpoint.set_metadata(metadata);
}

}  // namespace

Current& current(const char* caller) {
  if (!g_current) {
    throw std::runtime_error(fmt::format(
        "{}() cannot be used outside of a training function; call it in the function given to a trainer", caller));
  }
  return *g_current;
}

CurrentScope::CurrentScope(Current& current) {
  TRIREME_CHECK(!g_current, "a training function runs in this process already");
  g_current = &current;
}

CurrentScope::~CurrentScope() { g_current = nullptr; }

Context context_of(const wire::Start& start) {
  Context context;
  context.world_size = start.world_size;
  context.world_rank = start.rank;
  context.local_rank = start.local_rank;
  context.local_world_size = start.local_world_size;
  context.node_rank = start.node_rank;
  context.num_nodes = start.num_nodes;
  context.attempt = start.attempt;
  context.experiment_name = start.run_name;
  context.run_id = start.run_id;
  context.path = start.path;
  context.gpus = start.gpus;
  context.resources = start.resources;
  context.metadata = start.metadata;
  return context;
}

}  // namespace api

const Context& context() { return api::current("context").context; }

void report(const Metrics& metrics, const std::optional<Checkpoint>& checkpoint, const ReportOptions& options) {
  auto& current = api::current("report");
  if (!current.session) {
    if (checkpoint && !std::filesystem::is_directory(checkpoint->path())) {
      throw std::runtime_error(fmt::format("the checkpoint folder {} does not exist", checkpoint->path()));
    }
    current.metrics = metrics;
    if (checkpoint) current.checkpoint = checkpoint;
    ++current.reports;
    return;
  }
  std::optional<std::string> folder;
  if (checkpoint) {
    folder = checkpoint->path();
    api::attach_metadata(current.context.metadata, *checkpoint);
  }
  auto stored = api::value_or_throw(current.session->report(metrics, folder, options.checkpoint_dir_name));
  if (stored) current.checkpoint = Checkpoint(*stored);
}

std::optional<Checkpoint> get_checkpoint() { return api::current("get_checkpoint").checkpoint; }

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
