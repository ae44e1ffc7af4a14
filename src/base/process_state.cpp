#include "base/process_state.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cstdlib>

#include "base/fd.h"
#include "base/text.h"

namespace trireme::base {
namespace {

// Empty if the file cannot be read or the process has exited. All these files are shorter than the buffer.
std::string contents(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(8192, '\0');
  const ssize_t size = file.valid() ? ::read(file.get(), text.data(), text.size()) : 0;
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

// The kernel function in which the task waits, or the system call number if the function is hidden.
std::string waits_in(const std::string& folder) {
  const std::string channel(trim(contents(folder + "/wchan")));
  if (!channel.empty() && channel != "0") return " in " + channel;
  const std::string call = split(contents(folder + "/syscall"), ' ').front();
  if (!call.empty() && call.find_first_not_of("0123456789") == std::string::npos) return " in system call " + call;
  return "";
}

std::string state_in_words(char state, const std::string& folder) {
  switch (state) {
    case 'R': return "running";
    case 'S': return "sleeping" + waits_in(folder);
    case 'D': return "uninterruptible" + waits_in(folder);
    case 'T': return "stopped by a signal";
    case 't': return "stopped by a debugger";
    case 'Z':
    case 'X': return "ended";
    default: return fmt::format("in state {}", state);
  }
}

// 0 if the file has no such line.
long number_after(const std::string& text, std::string_view key) {
  const std::size_t at = text.find(key);
  return at == std::string::npos ? 0 : std::atol(text.c_str() + at + key.size());
}

// The kernel's state letter; '\0' if there is no such task.
char state_letter(const std::string& folder) {
  // "pid (any name) S ...": the name may contain any characters, including parentheses.
  const std::string stat = contents(folder + "/stat");
  const std::size_t name_end = stat.rfind(") ");
  return name_end == std::string::npos ? '\0' : stat[name_end + 2];
}

std::string describe_task(const std::string& folder) {
  const char letter = state_letter(folder);
  return letter == '\0' ? "gone" : state_in_words(letter, folder);
}

}  // namespace

std::string describe_process(int pid) {
  const std::string folder = fmt::format("/proc/{}", pid);
  std::string text = describe_task(folder);
  const std::string status = contents(folder + "/status");
  if (const long threads = number_after(status, "\nThreads:"); threads > 0) {
    text += ", " + count_of(threads, "thread");
  }
  if (const long swapped_kb = number_after(status, "\nVmSwap:"); swapped_kb >= 1024) {
    text += fmt::format(", {} MB swapped out", swapped_kb / 1024);
  }
  return text;
}

bool may_run(int pid) {
  const char letter = state_letter(fmt::format("/proc/{}", pid));
  return letter == 'R' || letter == 'S' || letter == 'D';
}

std::string describe_thread(int tid) { return describe_task(fmt::format("/proc/self/task/{}", tid)); }

}  // namespace trireme::base
