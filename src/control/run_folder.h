#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/report_count.h"
#include "control/retention.h"
#include "control/state.h"
#include "storage/files.h"
#include "trireme/value.h"

// Reads a run folder: run.json (the configuration) and events.jsonl (the events). A process that dies while writing
// leaves at most one incomplete line, which is skipped.

namespace trireme::control {

// $TRIREME_RESULTS or ~/trireme_results: the parent of run folders unless RunConfig.storage_path is set.
std::filesystem::path results_dir();

struct RunRecord {
  std::string path;
  Dict run;                  // run.json
  std::vector<Dict> events;  // in order of time
  bool torn = false;         // some line of the event log could not be read
};

struct RunSummary {
  std::string name;
  std::string id;
  std::string path;
  std::string state;  // "running", "finished", "failed", "stopped", or "lost": the driver died before the run ended
  std::int64_t num_workers = 0;
  std::int64_t attempts = 0;
  ReportCount reports;
  std::int64_t checkpoints = 0;  // committed and not removed
  double started = 0.0;          // seconds since 1970; of the last start if the run was resumed
  double seconds = 0.0;          // from `started` to the end, or to `now`
  Dict last_metrics;             // of rank 0
  std::optional<std::string> error;
};

bool is_run_folder(const std::filesystem::path& path);

base::Result<Dict> read_run_file(const std::filesystem::path& path);
base::Result<RunRecord> read_run(const std::filesystem::path& path);
// The same for a run folder in any storage.
base::Result<RunRecord> read_run(storage::Files& files, const std::string& path);

// `active`: whether the driver is alive, see is_active(RunEntry). `now`: seconds since 1970.
RunSummary summary(const RunRecord& record, bool active, double now);

// Rank 0's reports in order, without those that a restart repeated.
std::vector<Metrics> metrics_history(const RunRecord& record);
// Rank 0's last report, updated with the result of the validation of its checkpoint.
std::optional<Metrics> last_metrics(const RunRecord& record);
// The reports of every rank, as {"rank", "index", "attempt", "time", "metrics"}, ordered by index and rank.
std::vector<Dict> metrics_of_all_ranks(const RunRecord& record);

// The checkpoints that the run retains, worst first, read from the manifests. Damaged ones are added to `damaged`.
base::Result<std::vector<KeptCheckpoint>> read_checkpoints(storage::Files& files, const RunRecord& record,
                                                           std::vector<std::string>* damaged = nullptr);

// The return value of the function on rank 0, if the run finished.
base::Result<ReturnValue> read_return_value(storage::Files& files, const RunRecord& record);

// The logs of a run: {attempt, rank, file}, ordered by attempt and rank.
struct LogFile {
  int attempt;
  int rank;
  std::string path;
};
std::vector<LogFile> log_files(const std::filesystem::path& run_path);

}  // namespace trireme::control
