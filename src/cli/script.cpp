#include "cli/script.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "cli/commands.h"

namespace trireme::cli {

using base::error;

std::string usage_of(const std::string& command) {
  return fmt::format("trireme {} [options] script.py [args...]", command);
}

base::Result<void> check_script(const std::string& command, const std::vector<std::string>& words) {
  namespace fs = std::filesystem;
  if (words.empty()) return error("no script given: {}", usage_of(command));
  const std::string& script = words.front();
  if (script.starts_with("-")) return unknown_option(command, script);
  std::error_code failed;
  if (!fs::exists(script, failed)) {
    return error("script '{}' not found in {}", script, fs::current_path(failed).string());
  }
  if (fs::is_directory(script, failed)) {
    return error("'{}' is a folder, not a Python script: {}", script, usage_of(command));
  }
  return {};
}

int become_driver(std::vector<std::string> arguments, bool detached) {
  if (detached) arguments.insert(arguments.begin(), {"-m", "trireme.engines.detached", "start"});
  return become_python(std::move(arguments));
}

base::Error unknown_option(const std::string& command, const std::string& option) {
  return error("`trireme {}` has no option '{}'; options for the script go after its name", command, option);
}

int wrong_usage(const base::Error& error) {
  fmt::print(stderr, "trireme: {}\n", error.message());
  return kWrongUsage;
}

int become_python(std::vector<std::string> arguments) {
  const char* chosen = std::getenv("TRIREME_PYTHON");
  std::string python = chosen && *chosen ? chosen : "python3";
  std::vector<char*> argv = {python.data()};
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execvp(python.c_str(), argv.data());
  fmt::print(stderr, "trireme: {}; set TRIREME_PYTHON to a Python that has Trireme installed\n",
             base::system_error(fmt::format("could not start '{}'", python), errno).message());
  return kNoPython;
}

}  // namespace trireme::cli
