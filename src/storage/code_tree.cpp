#include "storage/code_tree.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "storage/digest.h"
#include "storage/disk_error.h"
#include "storage/local_files.h"
#include "storage/run_names.h"

namespace trireme::storage {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestFile = std::uint64_t{64} << 20;
constexpr std::uint64_t kLargestTree = std::uint64_t{512} << 20;
constexpr std::size_t kMostFiles = 20'000;

bool holds_no_code(const fs::path& folder) {
  const std::string name = folder.filename();
  std::error_code ignored;  // an unreadable folder is reported when it is listed
  return name.starts_with(".") || name == "__pycache__" || name == "node_modules" ||
         fs::exists(folder / "pyvenv.cfg", ignored) || fs::exists(folder / kEventsFile, ignored);
}

bool determines_digest(const std::string& name) {
  constexpr std::array<std::string_view, 8> kSuffixes = {".py",  ".pyi",  ".so",  ".yaml",
                                                         ".yml", ".toml", ".ini", ".cfg"};
  return name.empty() || std::any_of(kSuffixes.begin(), kSuffixes.end(),
                                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

base::Result<void> add_file(CodeTree& tree, const fs::path& path, const std::string& name, std::uint64_t& bytes) {
  std::error_code failure;
  const auto size = fs::file_size(path, failure);
  if (failure) return failed("read", path.native(), failure.value());
  if (size > kLargestFile) return {};
  bytes += size;
  tree.files[name] = size;
  if (bytes <= kLargestTree && tree.files.size() <= kMostFiles) return {};
  return base::error("it has more than {} MiB or {} files", kLargestTree >> 20, kMostFiles);
}

base::Result<void> add_folder(CodeTree& tree, const fs::path& folder, const std::string& prefix, std::uint64_t& bytes) {
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure)) {
    const std::string name = entry->path().filename();
    std::error_code gone;  // a dangling link, or removed in the meantime
    const auto status = entry->status(gone);
    if (fs::is_directory(status)) {
      // A link to a folder may lead to one of its parents.
      if (entry->is_symlink(gone) || holds_no_code(entry->path())) continue;
      TRIREME_TRY(add_folder(tree, entry->path(), prefix + name + "/", bytes));
    } else if (fs::is_regular_file(status) && !name.starts_with(".") && !name.ends_with(".pyc")) {
      TRIREME_TRY(add_file(tree, entry->path(), prefix + name, bytes));
    }
  }
  if (failure) return failed("list", folder.native(), failure.value());
  return {};
}

}  // namespace

base::Result<CodeTree> read_code(const std::string& path) {
  CodeTree tree;
  std::uint64_t bytes = 0;
  std::error_code failure;
  if (fs::is_directory(path, failure)) {
    TRIREME_TRY(add_folder(tree, path, "", bytes), "the code in {}", path);
  } else {
    TRIREME_TRY(add_file(tree, path, "", bytes), "the code in {}", path);
  }
  Digest digest;
  LocalFiles files;
  for (const auto& [name, size] : tree.files) {
    if (!determines_digest(name)) continue;
    TRIREME_ASSIGN(const auto sum, files.checksum(name.empty() ? path : path + "/" + name));
    digest.add(fmt::format("{} {} {}\n", name, size, sum));
  }
  tree.digest = digest.hex();
  return tree;
}

base::Result<void> copy_code(const std::string& path, const CodeTree& tree, const std::string& target) {
  for (const auto& [name, size] : tree.files) {
    const fs::path to = name.empty() ? target : target + "/" + name;
    std::error_code failure;
    fs::create_directories(to.parent_path(), failure);
    if (!failure) fs::copy_file(name.empty() ? path : path + "/" + name, to, failure);
    if (failure) return failed("copy code to", to.native(), failure.value());
  }
  return {};
}

}  // namespace trireme::storage
