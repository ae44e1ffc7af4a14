#include <cstdlib>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/script.h"

namespace trireme::cli {
namespace {

using base::error;
using base::Result;

void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

}  // namespace

Result<int> run(const RunOptions& options) {
  if (options.script.empty()) return error("no script given: trireme run [options] script.py [args...]");
  const std::string& script = options.script.front();
  if (script.starts_with("-")) {
    return error("`trireme run` has no option '{}'; options for the script go after its name", script);
  }
  TRIREME_TRY(check_script("run", script));

  TRIREME_TRY(set_engine(options.engine));
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
  for (const std::string& script : options.scripts) TRIREME_TRY(check_script("port", script));
  std::vector<std::string> words = {"-m", "trireme.compat.port"};
  if (options.write) words.emplace_back("--write");
  words.insert(words.end(), options.scripts.begin(), options.scripts.end());
  return become_python(std::move(words));
}

}  // namespace trireme::cli
