#include <fmt/format.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

#include "api/describe.h"
#include "api/runtime.h"
#include "base/host.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "engine/cpus.h"
#include "engine/gpus.h"
#include "engine/ledger.h"
#include "engine/resources.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (!value) return std::nullopt;
  return value;
}

// Queries the Python that `trireme run` would use. Imports nothing heavy, to be fast.
Dict python() {
  constexpr const char* kAsk =
      "\"${TRIREME_PYTHON:-python3}\" -c '\n"
      "import importlib.metadata as m, json, sys\n"
      "def v(name):\n"
      "    try: return m.version(name)\n"
      "    except m.PackageNotFoundError: return None\n"
      "print(json.dumps({\"executable\": sys.executable, \"version\": sys.version.split()[0],\n"
      "    \"packages\": {n: v(n) for n in (\"trireme\", \"torch\", \"numpy\", \"pyarrow\", \"pandas\")}}))\n"
      "' 2>/dev/null";
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(kAsk, "re"), ::pclose);
  std::string text;
  char buffer[512];
  while (pipe && std::fgets(buffer, sizeof buffer, pipe.get())) text += buffer;
  auto answer = base::parse_json_dict(text);
  return answer ? *std::move(answer) : Dict();
}

Dict memory() {
  struct sysinfo info {};
  ::sysinfo(&info);
  return {{"total", static_cast<std::int64_t>(info.totalram) * info.mem_unit},
          {"free", static_cast<std::int64_t>(info.freeram + info.bufferram) * info.mem_unit}};
}

List gpus() {
  List list;
  for (const auto& gpu : engine::find_gpus().gpus) list.push_back(Dict{{"id", gpu.id}, {"type", gpu.type}});
  return list;
}

Dict folder(const fs::path& path) {
  std::int64_t bytes = 0;
  std::error_code failed;
  constexpr auto kOptions = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator it(path, kOptions, failed), end; !failed && it != end; it.increment(failed)) {
    std::error_code unsized;
    if (it->is_regular_file(unsized) && !it->is_symlink(unsized))
      bytes += static_cast<std::int64_t>(it->file_size(unsized));
  }
  return {{"path", path.string()}, {"exists", fs::exists(path, failed)}, {"bytes", bytes}};
}

Dict declared() {
  Dict found;
  for (const char* name :
       {"TRIREME_NUM_CPUS", "TRIREME_NUM_GPUS", "TRIREME_RESOURCES", "TRIREME_ENGINE", "TRIREME_ENGINE_OPTIONS",
        "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}) {
    if (auto value = environment(name)) found[name] = *value;
  }
  return found;
}

List in_use() {
  List list;
  auto holdings = engine::Ledger(control::state_dir() / "capacity" / base::host_name()).holdings();
  if (!holdings) return list;
  for (const auto& holding : *holdings) {
    list.push_back(
        Dict{{"run", holding.run_name}, {"pid", holding.pid}, {"resources", engine::to_text(holding.resources)}});
  }
  return list;
}

// The nodes of the engine that is chosen; empty for the local one.
base::Result<Dict> cluster() {
  TRIREME_ASSIGN(const auto choice, api::choose_engine({}));
  if (choice.local()) return Dict();
  const auto python = environment("TRIREME_PYTHON");
  api::Runtime runtime(python ? std::vector<std::string>{*python} : std::vector<std::string>());
  TRIREME_ASSIGN(const auto* engine, runtime.engine());
  List nodes;
  for (const auto& node : engine->nodes()) {
    nodes.push_back(Dict{{"id", node.id},
                         {"host", node.host},
                         {"total", base::Codec<Resources>::to(node.total)},
                         {"accelerator_type", node.gpus.empty() ? "" : node.gpus.front().type}});
  }
  return Dict{{"engine", choice.name}, {"nodes", std::move(nodes)}};
}

std::string node_text(const Dict& node) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : node["total"].as_dict()) {
    parts.push_back(
        fmt::format("{} {}{}", base::amount(value.as_double()), name, name == "CPU" || name == "GPU" ? "s" : ""));
  }
  return fmt::format("{}: {}", node["host"].as_string(), base::join(parts, ", "));
}

Dict collect() {
  return {{"version", TRIREME_VERSION},
          {"host", base::host_name()},
          {"python", python()},
          {"cpus", Dict{{"machine", std::thread::hardware_concurrency()}, {"usable", engine::usable_cpus()}}},
          {"memory", memory()},
          {"gpus", gpus()},
          {"declared", declared()},
          {"in_use", in_use()},
          {"results", folder(control::results_dir())},
          {"state", folder(control::state_dir())}};
}

std::string size_text(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KB", "MB", "GB", "TB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (size >= 1000.0 && unit + 1 < std::size(kUnits)) {
    size /= 1000.0;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", size, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::string python_text(const Dict& python) {
  if (python.empty()) return "not found; set TRIREME_PYTHON to a Python that has Trireme installed";
  std::string text = fmt::format("{} ({})", python["version"].as_string(), python["executable"].as_string());
  for (const auto& [name, version] : python["packages"].as_dict()) {
    if (const auto* number = version.get_if<std::string>()) text += fmt::format(", {} {}", name, *number);
  }
  return text;
}

std::string gpus_text(const List& gpus) {
  if (gpus.empty()) return "none";
  std::vector<std::string> parts;
  for (const auto& gpu : gpus) parts.push_back(fmt::format("{}: {}", gpu["id"].as_string(), gpu["type"].as_string()));
  return fmt::format("{} ({})", gpus.size(), base::join(parts, ", "));
}

std::string folder_text(const Dict& folder) {
  if (!folder["exists"].as_bool()) return folder["path"].as_string() + " (does not exist yet)";
  return fmt::format("{} ({})", folder["path"].as_string(), size_text(folder["bytes"].as_int()));
}

void print(const Dict& all) {
  const Dict& cpus = all["cpus"].as_dict();
  const Dict& memory = all["memory"].as_dict();
  std::vector<std::pair<std::string, std::string>> rows = {
      {"trireme", all["version"].as_string()},
      {"host", all["host"].as_string()},
      {"python", python_text(all["python"].as_dict())},
      {"CPUs", fmt::format("{} usable of {}", base::amount(cpus["usable"].as_double()), cpus["machine"].as_int())},
      {"memory", fmt::format("{} ({} free)", size_text(memory["total"].as_int()), size_text(memory["free"].as_int()))},
      {"GPUs", gpus_text(all["gpus"].as_list())}};
  for (const auto& [name, value] : all["declared"].as_dict()) rows.emplace_back(name, value.as_string());
  for (const auto& use : all["in_use"].as_list()) {
    rows.emplace_back("in use", fmt::format("{} by run {} (pid {})", use["resources"].as_string(),
                                            use["run"].as_string(), use["pid"].as_int()));
  }
  if (const auto& cluster = all["cluster"].as_dict(); !cluster.empty()) {
    rows.emplace_back("engine", cluster["engine"].as_string());
    for (const auto& node : cluster["nodes"].as_list()) rows.emplace_back("node", node_text(node.as_dict()));
  }
  rows.emplace_back("results", folder_text(all["results"].as_dict()));
  rows.emplace_back("state", folder_text(all["state"].as_dict()));
  fmt::print("{}", api::two_columns(rows));
}

}  // namespace

base::Result<int> env(const EnvOptions& options) {
  set_engine(options.engine);
  Dict all = collect();
  TRIREME_ASSIGN(all["cluster"], cluster());
  if (options.json) fmt::print("{}\n", base::to_pretty_json(all));
  else print(all);
  return kDone;
}

}  // namespace trireme::cli
