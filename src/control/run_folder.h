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

// The reading side of a run folder: run.json (what was asked for) and events.jsonl (what happened). Whoever died while
// writing leaves at most half a line, which is passed over.

namespace trireme::control {

// $TRIREME_RESULTS or ~/trireme_results: where run folders lie unless RunConfig.storage_path says otherwise.
std::filesystem::path results_dir();

struct RunRecord {
  std::string path;
  Dict run;                  // run.json
  std::vector<Dict> events;  // in the order in which they happened
  bool torn = false;         // some line of the event log could not be read
};

struct RunSummary {
  std::string name;
  std::string id;
  std::string path;
  std::string state;  // "running", "finished", "failed", "stopped", or "lost": the driver died before it could say
  std::int64_t num_workers = 0;
  std::int64_t attempts = 0;
  ReportCount reports;
  std::int64_t checkpoints = 0;  // committed and not removed
  double started = 0.0;          // seconds since 1970; of the last start when the run was resumed
  double seconds = 0.0;          // from there to its end, or to `now`
  Dict last_metrics;             // of rank 0
  std::optional<std::string> error;
};

bool is_run_folder(const std::filesystem::path& path);

base::Result<Dict> read_run_file(const std::filesystem::path& path);
base::Result<RunRecord> read_run(const std::filesystem::path& path);
// The same of a run folder in any storage.
base::Result<RunRecord> read_run(storage::Files& files, const std::string& path);

// `active`: whether the driver lives, see is_active(RunEntry). `now`: seconds since 1970.
RunSummary summary(const RunRecord& record, bool active, double now);

// Rank 0's reports in order, without those that a restart has repeated.
std::vector<Metrics> metrics_history(const RunRecord& record);
// Rank 0's last report, and over it what the validation of its checkpoint has found.
std::optional<Metrics> last_metrics(const RunRecord& record);
// Every rank's, as {"rank", "index", "attempt", "time", "metrics"}, by index and rank.
std::vector<Dict> metrics_of_all_ranks(const RunRecord& record);

// What the run retains now, worst first, read from the manifests. Damaged ones are told in `damaged`.
base::Result<std::vector<KeptCheckpoint>> read_checkpoints(storage::Files& files, const RunRecord& record,
                                                           std::vector<std::string>* damaged = nullptr);

// What the function of rank 0 returned, where the run finished.
base::Result<ReturnValue> read_return_value(storage::Files& files, const RunRecord& record);

// The logs of a run: {attempt, rank, file}, ordered by attempt and rank.
struct LogFile {
  int attempt;
  int rank;
  std::string path;
};
std::vector<LogFile> log_files(const std::filesystem::path& run_path);

}  // namespace trireme::control
