#include <cstdlib>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/script.h"

namespace trireme::cli {
namespace {

using base::Result;

void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

}  // namespace

Result<int> run(const RunOptions& options) {
  if (auto checked = check_script("run", options.script); !checked) return wrong_usage(checked.error());
  set_engine(options.engine);
  if (options.num_workers) set("TRIREME_RUN_NUM_WORKERS", *options.num_workers);
  if (options.num_cpus) set("TRIREME_NUM_CPUS", base::amount(*options.num_cpus));
  if (options.num_gpus) set("TRIREME_NUM_GPUS", base::amount(*options.num_gpus));
  if (!options.preload.empty()) set("TRIREME_RUN_PRELOAD", base::join(options.preload, ","));

  std::vector<std::string> words = {"-m", "trireme._run_script"};
  if (!options.ray_compat.empty()) words = {"-m", "trireme.compat.ray"};
  if (options.ray_compat == "report") words.emplace_back("--report");
  words.insert(words.end(), options.script.begin(), options.script.end());
  return become_driver(std::move(words), options.detach);
}

Result<int> port(const PortOptions& options) {
  for (const std::string& script : options.scripts) {
    if (auto checked = check_script("port", {script}); !checked) return wrong_usage(checked.error());
  }
  std::vector<std::string> words = {"-m", "trireme.compat.port"};
  if (options.write) words.emplace_back("--write");
  words.insert(words.end(), options.scripts.begin(), options.scripts.end());
  return become_python(std::move(words));
}

}  // namespace trireme::cli
