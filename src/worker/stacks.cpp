#include "worker/stacks.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <mutex>

#include "base/text.h"
#include "worker/python_frames.h"
#include "worker/symbols.h"
#include "worker/thread_stacks.h"

namespace trireme::worker {
namespace {

using Symbols = std::map<Address, Symbol>;

constexpr std::size_t kMaxFunction = 300;

struct PythonDump {
  int signal = 0;
  int fd = -1;
  std::vector<std::string> library_folders;
};

// Process-wide, like the signal handlers.
struct SharedDump {
  std::mutex mutex;
  PythonDump dump;
};

SharedDump& shared_dump() {
  static SharedDump shared;
  return shared;
}

// A signal without a handler would end the process.
bool is_handled(int signal) {
  struct sigaction now {};
  if (signal == 0 || ::sigaction(signal, nullptr, &now) != 0) return false;
  return (now.sa_flags & SA_SIGINFO) || (now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN);
}

// The handler has run when tgkill() returns. Raised on this thread, because all others are stopped.
void raise_dump(const PythonDump& dump) {
  if (!is_handled(dump.signal) || ::ftruncate(dump.fd, 0) != 0 || ::lseek(dump.fd, 0, SEEK_SET) != 0) return;
  sigset_t only, before;
  ::sigemptyset(&only);
  ::sigaddset(&only, dump.signal);
  ::pthread_sigmask(SIG_UNBLOCK, &only, &before);
  ::syscall(SYS_tgkill, ::getpid(), static_cast<int>(::syscall(SYS_gettid)), dump.signal);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::string read_dump(const PythonDump& dump) {
  struct stat status {};
  if (dump.fd < 0 || ::fstat(dump.fd, &status) != 0 || status.st_size <= 0) return "";
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  const ssize_t size = ::pread(dump.fd, text.data(), text.size(), 0);
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

Symbols symbols_of(const std::vector<ThreadStack>& threads) {
  std::vector<Address> addresses;
  for (const ThreadStack& thread : threads) {
    addresses.insert(addresses.end(), thread.frames.begin(), thread.frames.end());
  }
  return symbolize(std::move(addresses));
}

std::string native_text(const ThreadStack& thread, const Symbols& symbols) {
  std::string text;
  for (const Address address : thread.frames) {
    const Symbol& symbol = symbols.at(address);
    const std::string file = symbol.file.empty() ? "code generated at run time" : file_name(symbol.file);
    if (!symbol.function.empty()) {
      text += fmt::format("    {}  ({})\n", symbol.function.substr(0, kMaxFunction), file);
    } else {
      text += fmt::format("    {}+{:#x}\n", file, symbol.file.empty() ? address : symbol.offset);
    }
  }
  return text;
}

std::string python_text(const PythonThread* thread) {
  if (!thread) return "";
  std::string text = "  Python, most recent call first:\n";
  for (const std::string& line : thread->lines) text += fmt::format("    {}\n", line);
  return text;
}

// False for libraries in which the user's code waits.
bool is_users(const Symbol& symbol, const std::string& program) {
  if (symbol.function.empty() || symbol.function.starts_with("trireme::") || symbol.function.starts_with("std::")) {
    return false;
  }
  if (symbol.file == program) return symbol.function != "main" && symbol.function != "_start";
  for (const std::string_view folder : {"/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "["}) {
    if (symbol.file.starts_with(folder)) return false;
  }
  const std::string name = file_name(symbol.file);
  constexpr std::array kLibraries = {"libtrireme", "libtorch", "libc10",  "libpython", "_core.",  "libgomp",
                                     "libnccl",    "libcud",   "libgloo", "libmkl",    "libgcc_", "libstdc++"};
  return std::none_of(kLibraries.begin(), kLibraries.end(),
                      [&](const char* library) { return name.starts_with(library); });
}

// "load in my_program (in clock_nanosleep)".
std::string native_place(const ThreadStack& thread, const Symbols& symbols) {
  std::error_code failed;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", failed).string();
  const Symbol* inner = nullptr;
  for (const Address address : thread.frames) {
    const Symbol& symbol = symbols.at(address);
    if (!inner && !symbol.function.empty()) inner = &symbol;
    if (!is_users(symbol, program)) continue;
    const std::string place = fmt::format("{} in {}", without_parameters(symbol.function), file_name(symbol.file));
    return inner == &symbol ? place : fmt::format("{} (in {})", place, without_parameters(inner->function));
  }
  return inner ? fmt::format("{} in {}", without_parameters(inner->function), file_name(inner->file)) : "";
}

struct Section {
  std::string head;  // of the first thread of the section
  std::vector<std::string> others;
  std::string body;
};

// Thread pools have many threads with the same stack, which is shown once.
std::string text_of(const std::vector<ThreadStack>& threads, const std::map<std::uintptr_t, PythonThread>& python,
                    const Symbols& symbols) {
  std::vector<Section> sections;
  for (const ThreadStack& thread : threads) {
    const auto frames = python.find(thread.pthread);
    const bool is_main = thread.tid == ::getpid();
    const std::string why = thread.silence.empty() ? "" : fmt::format(": {}", thread.silence);
    Section section{
        .head = fmt::format("Thread {} '{}'{}{}", thread.tid, thread.name, is_main ? ", main thread" : "", why),
        .others = {},
        .body = python_text(frames == python.end() ? nullptr : &frames->second)};
    if (!thread.frames.empty()) section.body += "  Native, most recent call first:\n" + native_text(thread, symbols);
    const auto same = std::find_if(sections.begin(), sections.end(), [&](const Section& other) {
      return !section.body.empty() && why.empty() && other.body == section.body;
    });
    if (same == sections.end()) {
      sections.push_back(std::move(section));
    } else {
      same->others.push_back(fmt::format("{}", thread.tid));
    }
  }
  std::string text;
  for (const Section& section : sections) {
    text += section.head;
    if (!section.others.empty()) text += fmt::format("; same stack: {}", base::join(section.others, ", "));
    text += fmt::format("\n{}\n", section.body);
  }
  return text;
}

// Frames of threads that did not answer.
std::string leftover_text(const std::vector<ThreadStack>& threads,
                          const std::map<std::uintptr_t, PythonThread>& python) {
  std::string text;
  for (const auto& [pthread, frames] : python) {
    const bool told = std::any_of(threads.begin(), threads.end(),
                                  [id = pthread](const ThreadStack& thread) { return thread.pthread == id; });
    if (!told) text += fmt::format("Python thread {:#x}, which did not answer\n{}\n", pthread, python_text(&frames));
  }
  return text;
}

}  // namespace

void prepare_stacks() { install_stack_handler(); }

void set_python_dump(int signal, int fd, std::vector<std::string> library_folders) {
  SharedDump& shared = shared_dump();
  const std::lock_guard lock(shared.mutex);
  shared.dump = PythonDump{signal, fd, std::move(library_folders)};
}

Stacks collect_stacks(base::Seconds timeout) {
  PythonDump dump;
  {
    SharedDump& shared = shared_dump();
    const std::lock_guard lock(shared.mutex);
    dump = shared.dump;
  }
  std::string problem;
  const auto threads = collect_threads(
      timeout, [&dump] { raise_dump(dump); }, problem);
  if (!problem.empty()) return {.where = "", .text = problem + "\n"};
  const auto python = parse_python_dump(read_dump(dump));
  const Symbols symbols = symbols_of(threads);

  Stacks stacks;
  stacks.text = text_of(threads, python, symbols) + leftover_text(threads, python);
  const auto main =
      std::find_if(threads.begin(), threads.end(), [](const ThreadStack& thread) { return thread.tid == ::getpid(); });
  if (main == threads.end()) return stacks;
  if (const auto frames = python.find(main->pthread); frames != python.end()) {
    std::error_code failed;
    const std::string folder = std::filesystem::current_path(failed).string();
    stacks.where = python_place(frames->second.frames, dump.library_folders, folder);
  }
  if (stacks.where.empty()) stacks.where = native_place(*main, symbols);
  return stacks;
}

}  // namespace trireme::worker
