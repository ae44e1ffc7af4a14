#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/text.h"
#include "cli/commands.h"

namespace trireme::cli {
namespace {

using base::error;
using base::Result;

Result<void> check_script(const std::string& script) {
  namespace fs = std::filesystem;
  std::error_code failed;
  if (script.starts_with("-")) {
    return error("'{}' is no option of `trireme run`; options of the script come after the script", script);
  }
  if (!fs::exists(script, failed)) {
    return error("there is no script '{}' (in {})", script, fs::current_path(failed).string());
  }
  if (fs::is_directory(script, failed)) return error("'{}' is a folder; name a Python script", script);
  return {};
}

void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

}  // namespace

Result<int> run(const RunOptions& options) {
  if (options.script.empty()) return error("no script was named: trireme run [options] script.py [args...]");
  TRIREME_TRY(check_script(options.script.front()));

  if (options.num_workers) set("TRIREME_RUN_NUM_WORKERS", *options.num_workers);
  if (options.num_cpus) set("TRIREME_NUM_CPUS", base::amount(*options.num_cpus));
  if (options.num_gpus) set("TRIREME_NUM_GPUS", base::amount(*options.num_gpus));
  if (!options.preload.empty()) set("TRIREME_RUN_PRELOAD", base::join(options.preload, ","));

  const char* chosen = std::getenv("TRIREME_PYTHON");
  std::string python = chosen && *chosen ? chosen : "python3";
  std::vector<std::string> words = {python, "-m", "trireme._run_script"};
  words.insert(words.end(), options.script.begin(), options.script.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(python.c_str(), argv.data());
  fmt::print(stderr, "trireme: {}; set TRIREME_PYTHON to the Python that has Trireme\n",
             base::system_error(fmt::format("could not start '{}'", python), errno).message());
  return kNoPython;
}

}  // namespace trireme::cli
