#include "found_files.h"

#include <arrow/filesystem/localfs.h>
#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <stdexcept>
#include <string_view>

#include "open_uri.h"
#include "status.h"

namespace trireme::dataset {
namespace {

namespace fs = ::arrow::fs;

bool is_pattern(const std::string& path) { return path.find_first_of("*?[") != std::string::npos; }

// Whether a component of the path below the folder marks the file as hidden ('.' or '_').
bool hidden(const std::string& path, const std::string& folder) {
  std::size_t at = folder.size();
  while (at < path.size()) {
    if (path[at] == '/') ++at;
    if (at < path.size() && (path[at] == '.' || path[at] == '_')) return true;
    at = std::min(path.find('/', at), path.size());
  }
  return false;
}

std::vector<fs::FileInfo> below(fs::FileSystem& filesystem, const std::string& folder) {
  fs::FileSelector selector;
  selector.base_dir = folder;
  selector.recursive = true;
  selector.allow_not_found = true;
  std::vector<fs::FileInfo> files;
  for (auto& info : check(filesystem.GetFileInfo(selector))) {
    if (info.IsFile() && !hidden(info.path(), folder)) files.push_back(std::move(info));
  }
  return files;
}

std::vector<fs::FileInfo> matching(fs::FileSystem& filesystem, const std::string& pattern) {
  const std::size_t wild = pattern.find_first_of("*?[");
  const std::size_t slash = pattern.rfind('/', wild);
  std::vector<fs::FileInfo> files;
  for (auto& info : below(filesystem, slash == std::string::npos ? "." : pattern.substr(0, slash))) {
    if (::fnmatch(pattern.c_str(), info.path().c_str(), FNM_PATHNAME) == 0) files.push_back(std::move(info));
  }
  return files;
}

// Compressed files have a second extension.
bool ends_with_one_of(std::string path, const std::vector<std::string>& endings) {
  if (endings.empty()) return true;
  for (auto& letter : path) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  const auto matches = [&](std::string_view name) {
    return std::any_of(endings.begin(), endings.end(), [&](const auto& ending) { return name.ends_with(ending); });
  };
  for (const std::string_view packed : {".gz", ".bz2", ".zst", ".lz4", ".br"}) {
    if (path.ends_with(packed) && matches(std::string_view(path).substr(0, path.size() - packed.size()))) return true;
  }
  return matches(path);
}

std::string kinds(const std::vector<std::string>& endings) {
  std::string text;
  for (const auto& ending : endings) text += (text.empty() ? " ending in " : " or ") + ending;
  return text;
}

struct Place {
  std::shared_ptr<fs::FileSystem> filesystem;
  std::string path;
  bool remote = false;
};

Place place_of(const std::string& path) {
  const std::size_t scheme = path.find("://");
  if (scheme == std::string::npos) {
    // Absolute: workers may have a different working directory.
    std::string absolute = std::filesystem::absolute(path).lexically_normal();
    while (absolute.size() > 1 && absolute.ends_with('/')) absolute.pop_back();
    return {std::make_shared<fs::LocalFileSystem>(), std::move(absolute)};
  }
  // A URI cannot contain wildcards: only the folders before them are resolved, with the store's options.
  const std::size_t query = std::min(path.find('?'), path.size());
  const std::size_t wild = path.find_first_of("*[", scheme);
  const std::size_t end = wild < query ? path.rfind('/', wild) : query;
  Place place;
  place.filesystem = open_uri(path.substr(0, end) + path.substr(query), place.path);
  place.path += path.substr(end, query - end);
  place.remote = !path.starts_with("file:");
  return place;
}

}  // namespace

FoundFiles find_files(const std::vector<std::string>& paths, const std::vector<std::string>& endings) {
  if (paths.empty()) throw std::runtime_error("no paths given");
  FoundFiles found;
  for (const auto& given : paths) {
    Place place = place_of(given);
    if (found.filesystem && found.filesystem->type_name() != place.filesystem->type_name()) {
      throw std::runtime_error(given + " is in a different store than " + paths.front());
    }
    if (!found.filesystem) found.filesystem = place.filesystem;
    found.remote |= place.remote;
    std::vector<fs::FileInfo> here;
    const auto unwanted = [&](const fs::FileInfo& info) { return !ends_with_one_of(info.path(), endings); };
    if (is_pattern(place.path)) {
      here = matching(*place.filesystem, place.path);
      // A pattern such as *.pgm selects the files itself.
      if (place.path.find('.', place.path.rfind('/') + 1) == std::string::npos) std::erase_if(here, unwanted);
      if (here.empty()) throw std::runtime_error("no file matches " + given);
    } else {
      const auto info = check(place.filesystem->GetFileInfo(place.path));
      if (info.IsFile()) here.push_back(info);
      if (info.IsDirectory()) {
        here = below(*place.filesystem, place.path);
        if (paths.size() == 1) found.folder = place.path;
        std::erase_if(here, unwanted);
        if (here.empty()) throw std::runtime_error("no files" + kinds(endings) + " in the folder " + given);
      }
      if (here.empty()) throw std::runtime_error("no such file or folder: " + given);
    }
    std::sort(here.begin(), here.end(), [](const auto& a, const auto& b) { return a.path() < b.path(); });
    found.files.insert(found.files.end(), here.begin(), here.end());
  }
  return found;
}

std::string short_list(const std::vector<std::string>& paths) {
  std::string text;
  constexpr std::size_t kShown = 2;
  for (std::size_t i = 0; i < std::min(paths.size(), kShown); ++i) text += (i ? ", " : "") + paths[i];
  if (paths.size() > kShown) text += " and " + std::to_string(paths.size() - kShown) + " more";
  return text;
}

}  // namespace trireme::dataset
