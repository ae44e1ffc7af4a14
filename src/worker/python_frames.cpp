#include "worker/python_frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace trireme::worker {
namespace {

// `Thread 0x00007f… (most recent call first):`, `Current thread 0x…`; newer versions insert the thread's name.
std::optional<std::uintptr_t> thread_of(std::string_view line) {
  if (!line.starts_with("Thread 0x") && !line.starts_with("Current thread 0x")) return {};
  line.remove_prefix(line.find("0x") + 2);
  std::uintptr_t thread = 0;
  if (std::from_chars(line.data(), line.data() + line.size(), thread, 16).ec != std::errc()) return {};
  return thread;
}

// `File "/home/me/train.py", line 33 in step`. Parsed from the right, because a file name may contain anything.
std::optional<PythonFrame> frame_of(std::string_view line) {
  constexpr std::string_view kFile = "File \"";
  constexpr std::string_view kLine = "\", line ";
  if (!line.starts_with(kFile)) return {};
  line.remove_prefix(kFile.size());
  const std::size_t file_end = line.rfind(kLine);
  if (file_end == std::string_view::npos) return {};
  PythonFrame frame;
  frame.file = line.substr(0, file_end);
  line.remove_prefix(file_end + kLine.size());
  std::from_chars(line.data(), line.data() + line.size(), frame.line);
  const std::size_t function = line.find(" in ");
  frame.function = function == std::string_view::npos ? "?" : line.substr(function + 4);
  return frame;
}

bool lies_in(std::string_view file, std::string_view folder) {
  return !folder.empty() && file.size() > folder.size() && file.starts_with(folder) && file[folder.size()] == '/';
}

// The name of the file within the library; empty for the user's files.
std::optional<std::string> name_in_library(std::string_view file, const std::vector<std::string>& folders) {
  if (file.starts_with("<frozen ")) return std::string(file);
  for (const std::string_view marker : {"/site-packages/", "/dist-packages/"}) {
    const std::size_t at = file.rfind(marker);
    if (at != std::string_view::npos) return std::string(file.substr(at + marker.size()));
  }
  std::string_view longest;  // the folder of a package may be inside another's
  for (const std::string& folder : folders) {
    if (lies_in(file, folder) && folder.size() > longest.size()) longest = folder;
  }
  if (longest.empty()) return {};
  return std::string(file.substr(longest.size() + 1));
}

std::string short_name(const std::string& file, const std::string& folder) {
  if (lies_in(file, folder)) return file.substr(folder.size() + 1);
  return file.starts_with('/') ? file.substr(file.rfind('/') + 1) : file;
}

}  // namespace

std::map<std::uintptr_t, PythonThread> parse_python_dump(std::string_view dump) {
  std::map<std::uintptr_t, PythonThread> threads;
  PythonThread* current = nullptr;
  for (const std::string& raw : base::split(dump, '\n')) {
    const std::string_view line = base::trim(raw);
    if (const auto thread = thread_of(line)) {
      current = &threads[*thread];
    } else if (current && !line.empty()) {
      current->lines.emplace_back(line);
      if (auto frame = frame_of(line)) current->frames.push_back(std::move(*frame));
    }
  }
  return threads;
}

std::string python_place(const std::vector<PythonFrame>& frames, const std::vector<std::string>& library_folders,
                         const std::string& folder) {
  if (frames.empty()) return "";
  const PythonFrame& inner = frames.front();
  const auto inner_library = name_in_library(inner.file, library_folders);
  const std::string inner_name = inner_library.value_or(short_name(inner.file, folder));
  const auto user = std::find_if(frames.begin(), frames.end(), [&](const PythonFrame& frame) {
    return !name_in_library(frame.file, library_folders);
  });
  if (user == frames.begin() || user == frames.end()) {
    return fmt::format("{}:{} in {}", inner_name, inner.line, inner.function);
  }
  return fmt::format("{}:{} in {} (in {}:{} {})", short_name(user->file, folder), user->line, user->function,
                     inner_name, inner.line, inner.function);
}

}  // namespace trireme::worker
