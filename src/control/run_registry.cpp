#include "control/run_registry.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <system_error>

#include "base/dict_fields.h"
#include "base/fd.h"
#include "base/host.h"
#include "base/json.h"
#include "base/text.h"
#include "control/run_folder.h"
#include "storage/local_files.h"

namespace trireme::control {
namespace {

namespace fs = std::filesystem;
using base::error;
using base::Result;

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return value;
}

// $HOME, or the entry in the user database.
std::optional<std::string> home_folder() {
  if (auto home = environment("HOME")) return home;
  char buffer[4096];
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(::geteuid(), &entry, buffer, sizeof buffer, &found) != 0 || !found) return std::nullopt;
  std::error_code failed;
  const std::string home = found->pw_dir ? found->pw_dir : "";
  // The home directory of a service user may not exist.
  if (home.empty() || home == "/" || !fs::is_directory(home, failed)) return std::nullopt;
  return home;
}

// Root may keep its state in the home directory of a user whose shell it has taken over; that user could read it there
// anyway.
enum class Owner { kSelf, kSelfOrRootKnows };

// A folder that no other user can write to. Our own may have been created with a umask that permits group writes.
Result<void> make_private(const fs::path& path, Owner owner) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return base::system_error(fmt::format("could not create {}", path.string()), errno);
  }
  const base::Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat found {};
  if (!folder.valid() || ::fstat(folder.get(), &found) != 0) {
    return base::system_error(fmt::format("could not open {}", path.string()), errno);
  }
  const bool known = owner == Owner::kSelfOrRootKnows && ::geteuid() == 0;
  if (found.st_uid != ::geteuid() && !known) {
    return error("{} belongs to another user (uid {})", path.string(), found.st_uid);
  }
  if ((found.st_mode & 022) != 0 && ::fchmod(folder.get(), found.st_mode & 07755) != 0) {
    return base::system_error(
        fmt::format("could not remove the write permission of other users from {}", path.string()), errno);
  }
  return {};
}

Result<void> write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return base::system_error("write", errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

// Replaces the old file atomically. No other user can read the file at any time.
Result<void> write_private(const fs::path& path, std::string_view text) {
  fs::path draft = path;
  draft += ".new-" + std::to_string(::getpid());
  ::unlink(draft.c_str());
  base::Fd fd(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return base::system_error(draft.string(), errno);
  auto written = write_all(fd.get(), text);
  if (written && ::rename(draft.c_str(), path.c_str()) != 0) written = base::system_error(path.string(), errno);
  if (!written) ::unlink(draft.c_str());
  return written;
}

std::optional<RunEntry> read_entry(const fs::path& path) {
  auto text = storage::read_file(path.native());
  if (!text) return std::nullopt;
  auto parsed = base::parse_json_dict(*text);
  if (!parsed) return std::nullopt;
  // Ignore fields added by newer versions.
  Dict known;
  for (const auto& name : base::field_names<RunEntry>()) {
    if (const Value* value = parsed->find(name)) known[name] = *value;
  }
  auto entry = base::from_dict<RunEntry>(known, "run entry");
  if (!entry || entry->id.empty()) return std::nullopt;
  return std::move(entry).value();
}

bool same_folder(const std::string& a, const std::string& b) {
  std::error_code failed;
  return a == b || fs::equivalent(a, b, failed);
}

std::string listing(const std::vector<RunEntry>& entries) {
  std::string text;
  for (const auto& entry : entries)
    text += fmt::format("\n  {}  {}  {}", entry.id.substr(0, 12), entry.name, entry.path);
  return text;
}

// A resumed run has several entries with the same folder: they are one run, represented by the newest.
std::vector<RunEntry> newest_per_folder(const std::vector<RunEntry>& newest_first) {
  std::vector<RunEntry> kept;
  for (const auto& entry : newest_first) {
    bool seen = std::any_of(kept.begin(), kept.end(), [&](const RunEntry& other) { return other.path == entry.path; });
    if (!seen) kept.push_back(entry);
  }
  return kept;
}

Result<RunEntry> only_one(const std::string& what, std::vector<RunEntry> matches) {
  if (matches.size() == 1) return matches.front();
  std::vector<RunEntry> active;
  std::copy_if(matches.begin(), matches.end(), std::back_inserter(active), is_active);
  if (active.size() == 1) return active.front();
  return error("'{}' matches {} runs; use the id or the folder of one:{}", what, matches.size(), listing(matches));
}

RunEntry entry_of_folder(const fs::path& folder) {
  RunEntry entry;
  entry.path = folder.string();
  entry.name = folder.filename().string();
  if (auto run = read_run_file(folder)) {
    entry.id = base::text_of(*run, "id");
    entry.name = base::text_of(*run, "name", entry.name);
    entry.started = base::number_of(*run, "created");
  }
  return entry;
}

template <typename Predicate>
std::vector<RunEntry> matching(const std::vector<RunEntry>& runs, Predicate predicate) {
  std::vector<RunEntry> found;
  std::copy_if(runs.begin(), runs.end(), std::back_inserter(found), predicate);
  return found;
}

}  // namespace

fs::path state_dir() {
  if (auto dir = environment("TRIREME_STATE_DIR")) return *dir;
  if (auto dir = environment("XDG_STATE_HOME")) return fs::path(*dir) / "trireme";
  if (auto home = home_folder()) return fs::path(*home) / ".local" / "state" / "trireme";
  std::error_code failure;
  const fs::path temporary = fs::temp_directory_path(failure);
  return (failure ? fs::path("/tmp") : temporary) / fmt::format("trireme-{}", ::geteuid()) / "state";
}

Result<void> make_state_dir(const fs::path& state) {
  constexpr const char* kWayOut = "set TRIREME_STATE_DIR to a writable folder that only you own";
  std::error_code failed;
  fs::create_directories(state.parent_path(), failed);
  if (failed) return error("could not create {}: {}; {}", state.parent_path().string(), failed.message(), kWayOut);
  // The owner of a world-writable folder could replace its content.
  const bool in_temporary = state.parent_path().filename() == fmt::format("trireme-{}", ::geteuid());
  if (in_temporary) TRIREME_TRY(make_private(state.parent_path(), Owner::kSelf), "{}", kWayOut);
  TRIREME_TRY(make_private(state, in_temporary ? Owner::kSelf : Owner::kSelfOrRootKnows), "{}", kWayOut);
  return {};
}

std::optional<std::int64_t> process_start(std::int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (pid <= 0 || !std::getline(file, text)) return std::nullopt;
  // The second field is the program's name in parentheses, and may itself contain spaces and parentheses.
  std::size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return std::nullopt;
  auto fields = base::split(base::trim(std::string_view(text).substr(end_of_name + 1)), ' ');
  constexpr std::size_t kStartTime = 22 - 3;  // the first field after the name is number 3
  if (fields.size() <= kStartTime || fields[0] == "Z" || fields[0] == "X") return std::nullopt;
  return std::atoll(fields[kStartTime].c_str());
}

bool is_elsewhere(const RunEntry& entry) { return !entry.host.empty() && entry.host != base::host_name(); }

bool is_active(const RunEntry& entry) {
  if (!entry.address) return false;
  if (is_elsewhere(entry)) return true;
  // After a reboot, or in a container that replaced another one, the pid belongs to another process.
  const bool seen = entry.process_table.empty() || entry.process_table == base::process_table();
  return seen && process_start(entry.pid) == entry.pid_start;
}

Result<void> RunRegistry::register_run(const RunEntry& entry) const {
  if (entry.id.empty() || entry.id.find('/') != std::string::npos) return error("invalid run id '{}'", entry.id);
  TRIREME_TRY(make_state_dir(folder_.parent_path()));
  TRIREME_TRY(make_private(folder_, Owner::kSelfOrRootKnows), "set TRIREME_STATE_DIR to a folder that only you own");
  if (::chmod(folder_.c_str(), 0700) != 0) return base::system_error(folder_.string(), errno);
  TRIREME_TRY(write_private(file_of(entry.id), base::to_pretty_json(base::to_dict(entry)) + "\n"),
              "could not register the run in {}; set TRIREME_STATE_DIR to a writable folder", folder_.string());
  forget_oldest();
  return {};
}

Result<void> RunRegistry::finish_run(const std::string& id) const {
  auto entry = read_entry(file_of(id));
  if (!entry) return error("no run {} in {}", id, folder_.string());
  entry->address.reset();
  entry->secret.reset();
  Dict dict = base::to_dict(*entry);
  dict.erase("address");
  dict.erase("secret");
  TRIREME_TRY(write_private(file_of(id), base::to_pretty_json(dict) + "\n"), "could not record the end of run {}", id);
  return {};
}

std::optional<RunEntry> RunRegistry::entry(const std::string& id) const { return read_entry(file_of(id)); }

std::vector<RunEntry> RunRegistry::list_runs() const {
  std::vector<RunEntry> runs;
  std::error_code failed;
  for (const auto& file : fs::directory_iterator(folder_, failed)) {
    if (file.path().extension() != ".json") continue;
    if (auto entry = read_entry(file.path())) runs.push_back(*std::move(entry));
  }
  std::sort(runs.begin(), runs.end(), [](const RunEntry& a, const RunEntry& b) {
    return a.started != b.started ? a.started > b.started : a.id < b.id;
  });
  return runs;
}

Result<RunEntry> RunRegistry::find_run(const std::string& what) const {
  if (what.empty()) return error("no run was given; `trireme runs` lists them");
  const auto runs = list_runs();
  auto by_id = matching(runs, [&](const RunEntry& run) { return run.id == what; });
  if (!by_id.empty()) return by_id.front();
  auto by_name = newest_per_folder(matching(runs, [&](const RunEntry& run) { return run.name == what; }));
  if (!by_name.empty()) return only_one(what, by_name);

  for (const fs::path& folder : {fs::path(what), results_dir() / what}) {
    std::error_code failed;
    if (!is_run_folder(folder)) continue;
    fs::path whole = fs::canonical(folder, failed);
    auto by_path = matching(runs, [&](const RunEntry& run) { return same_folder(run.path, whole.string()); });
    return by_path.empty() ? entry_of_folder(whole) : by_path.front();
  }

  auto by_prefix = matching(runs, [&](const RunEntry& run) { return run.id.starts_with(what); });
  if (!by_prefix.empty()) return only_one(what, by_prefix);

  std::vector<std::string> names;
  for (const auto& run : runs) names.push_back(run.name);
  return error("no run with the name, id or folder '{}'{}; `trireme runs --all` lists all runs", what,
               base::did_you_mean(what, names));
}

void RunRegistry::forget_oldest() const {
  std::error_code failed;
  auto files = std::distance(fs::directory_iterator(folder_, failed), fs::directory_iterator());
  if (static_cast<std::size_t>(files) <= kMaxRemembered) return;
  auto runs = list_runs();
  // Removes a tenth at once, so that not every start of a run reads all entries.
  for (std::size_t i = kMaxRemembered - kMaxRemembered / 10; i < runs.size(); ++i) {
    // The end of a run on another machine may never be recorded here, so such entries are removed too.
    if (!is_active(runs[i]) || is_elsewhere(runs[i])) fs::remove(file_of(runs[i].id), failed);
  }
}

}  // namespace trireme::control
