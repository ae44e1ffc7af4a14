#include "cli/commands.h"
#include "cli/script.h"

namespace trireme::cli {
namespace {

// Removes the arguments that select the driver, as `--name value` and `--name=value`.
std::vector<std::string> without_driver_arguments(const std::vector<std::string>& words) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    if (name != "--engine" && name != "--engine-option" && name != "--job") {
      kept.push_back(words[i]);
    } else if (name == words[i]) {
      ++i;
    }
  }
  return kept;
}

}  // namespace

base::Result<int> at_driver(const DriverArguments& driver, std::vector<std::string> words) {
  const auto& [engine, options] = driver.engine;
  if (!engine && !options.empty()) return base::error("--engine-option {}: it needs --engine", options.front());
  if (!engine) return base::error("--job {}: it needs --engine", driver.job);
  set_engine(driver.engine);
  std::vector<std::string> python = {"-m", "trireme.engines.detached", "command"};
  if (!driver.job.empty()) python.insert(python.end(), {"--job", driver.job});
  for (auto& word : without_driver_arguments(words)) python.push_back(std::move(word));
  return become_python(std::move(python));
}

}  // namespace trireme::cli
