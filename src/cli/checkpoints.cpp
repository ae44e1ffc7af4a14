#include <fmt/format.h>

#include "api/describe.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/commit.h"
#include "cli/commands.h"
#include "storage/local_files.h"

namespace trireme::cli {
namespace {

// A checkpoint in the run folder and the result of checking its files.
struct Seen {
  control::KeptCheckpoint kept;
  std::uint64_t bytes = 0;
  std::size_t files = 0;
  std::string problem;
};

std::string size_text(std::uint64_t bytes) {
  double size = static_cast<double>(bytes);
  for (const char* unit : {"B", "kB", "MB", "GB"}) {
    if (size < 1000) return fmt::format("{:.3g} {}", size, unit);
    size /= 1000;
  }
  return fmt::format("{:.3g} TB", size);
}

base::Result<std::vector<Seen>> look(storage::Files& files, const control::RunRecord& record, bool verify,
                                     std::vector<std::string>& damaged) {
  TRIREME_ASSIGN(auto ranked, control::read_checkpoints(files, record, &damaged));
  std::vector<Seen> seen;
  for (auto& kept : ranked) {
    const std::string folder = record.path + "/" + kept.name;
    const std::string path = folder + "/" + checkpoint::kManifestName;
    auto text = files.read(path);
    if (!text) continue;  // deleted by retention in the meantime
    TRIREME_ASSIGN(auto manifest, checkpoint::decode_manifest(*text), "{}", path);
    Seen made{std::move(kept), 0, manifest.files.size(), ""};
    for (const auto& file : manifest.files) made.bytes += file.size;
    auto whole = checkpoint::verify(files, {made.kept.name, folder, std::move(manifest)}, verify);
    if (!whole) made.problem = whole.error().message();
    seen.push_back(std::move(made));
  }
  return seen;
}

void print_json(const std::vector<Seen>& seen, const std::string& run_path) {
  List list;
  for (const auto& each : seen) {
    Dict item = control::to_list({each.kept}, run_path).front().as_dict();
    item["bytes"] = each.bytes;
    item["files"] = each.files;
    item["problem"] = each.problem.empty() ? Value() : Value(each.problem);
    list.push_back(std::move(item));
  }
  fmt::print("{}\n", base::to_pretty_json(list));
}

void print_table(const std::vector<Seen>& seen) {
  if (seen.empty()) fmt::print("no checkpoints\n");
  for (const auto& each : seen) {
    fmt::print("  {:<20}  {:<9}  {:>8}  {:>10}  {}\n", each.kept.name,
               each.problem.empty() ? checkpoint::to_string(each.kept.status) : "DAMAGED",
               base::count_of(each.files, "file"), size_text(each.bytes),
               each.problem.empty() ? api::metrics_text(each.kept.metrics) : each.problem);
  }
}

}  // namespace

base::Result<int> checkpoints(const CheckpointsOptions& options) {
  TRIREME_ASSIGN(auto found, find(options.run));
  storage::LocalFiles files;
  std::vector<std::string> damaged;
  TRIREME_ASSIGN(auto seen, look(files, found.record, options.verify, damaged));
  if (options.json) {
    print_json(seen, found.record.path);
  } else {
    print_table(seen);
  }
  bool whole = damaged.empty();
  for (const auto& each : damaged) fmt::print(stderr, "trireme: {}\n", each);
  for (const auto& each : seen) whole = whole && each.problem.empty();
  return whole ? kDone : kFailed;
}

}  // namespace trireme::cli
