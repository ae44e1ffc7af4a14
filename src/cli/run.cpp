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

  if (options.num_workers) set("TRIREME_RUN_NUM_WORKERS", *options.num_workers);
  if (options.num_cpus) set("TRIREME_NUM_CPUS", base::amount(*options.num_cpus));
  if (options.num_gpus) set("TRIREME_NUM_GPUS", base::amount(*options.num_gpus));
  if (!options.preload.empty()) set("TRIREME_RUN_PRELOAD", base::join(options.preload, ","));

  std::vector<std::string> words = {"-m", "trireme._run_script"};
  words.insert(words.end(), options.script.begin(), options.script.end());
  return become_python(std::move(words));
}

}  // namespace trireme::cli
