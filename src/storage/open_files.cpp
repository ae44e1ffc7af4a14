#include "storage/open_files.h"

#include <cctype>
#include <exception>
#include <map>
#include <mutex>
#include <optional>

#include "base/hex.h"
#include "storage/local_files.h"
#include "storage/remote_files.h"
#include "trireme/filesystem.h"

namespace trireme {
namespace {

// Process-wide, as register_filesystem() is.
struct Registry {
  std::mutex mutex;
  std::map<std::string, FileSystemFactory> factories;
};

Registry& registry() {
  static Registry made;
  return made;
}

}  // namespace

void register_filesystem(const std::string& scheme, FileSystemFactory factory) {
  std::lock_guard lock(registry().mutex);
  registry().factories[scheme] = std::move(factory);
}

namespace storage {
namespace {

// "s3" for "s3://bucket/run", nullopt for a path.
std::optional<std::string> scheme_of(const std::string& uri) {
  const auto end = uri.find("://");
  if (end == std::string::npos || end == 0) return std::nullopt;
  std::string scheme;
  for (const char c : uri.substr(0, end)) {
    const auto byte = static_cast<unsigned char>(c);
    if (!std::isalnum(byte) && c != '+' && c != '-' && c != '.') return std::nullopt;
    scheme += static_cast<char>(std::tolower(byte));
  }
  return scheme;
}

base::Result<std::string> percent_decoded(const std::string& text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const auto byte = base::from_hex(text.substr(i + 1, 2));
    if (!byte || byte->size() != 1 || byte->front() == '\0') {
      return base::error("'{}' is not a valid %-encoding; write '%' as %25", text.substr(i, 3));
    }
    decoded += *byte;
    i += 2;
  }
  return decoded;
}

base::Result<std::string> path_of_file_uri(const std::string& uri) {
  const std::string rest = uri.substr(std::string("file://").size());
  const auto slash = rest.find('/');
  const std::string host = rest.substr(0, slash);
  if (slash == std::string::npos || (!host.empty() && host != "localhost")) {
    return base::error("a file:// URI must have three slashes: file:///folder");
  }
  return percent_decoded(rest.substr(slash));
}

FileSystemFactory factory_of(const std::string& scheme) {
  std::lock_guard lock(registry().mutex);
  const auto found = registry().factories.find(scheme);
  return found == registry().factories.end() ? nullptr : found->second;
}

// The boundary to user code: catches its exceptions.
base::Result<std::shared_ptr<FileSystem>> call(const FileSystemFactory& factory, const std::string& uri) {
  try {
    if (auto made = factory(uri)) return made;
    return base::error("the file system registered for it is null");
  } catch (const std::exception& problem) {
    return base::error("{}", problem.what());
  }
}

std::string path_of(const std::string& uri, const std::string& scheme) {
  std::string path = uri.substr(scheme.size() + 3);
  path.erase(std::min(path.find('?'), path.size()));  // options of the file system
  while (path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

base::Result<std::shared_ptr<Files>> open_files(const std::string& uri, std::string& path) {
  const auto scheme = scheme_of(uri);
  if (!scheme) {
    path = uri;
    return std::shared_ptr<Files>(std::make_shared<LocalFiles>());
  }
  const auto factory = factory_of(*scheme);
  if (*scheme == "file" && !factory) {
    TRIREME_ASSIGN(path, path_of_file_uri(uri), "storage_path = '{}'", uri);
    return std::shared_ptr<Files>(std::make_shared<LocalFiles>());
  }
  if (!factory) {
    return base::error(
        "storage_path = '{}': this program has no file system for '{}'; link trireme::data "
        "(find_package(trireme COMPONENTS data)), or register one with trireme::register_filesystem",
        uri, *scheme);
  }
  TRIREME_ASSIGN(auto file_system, call(factory, uri), "storage_path = '{}' cannot be used", uri);
  path = path_of(uri, *scheme);
  return std::shared_ptr<Files>(std::make_shared<RemoteFiles>(std::move(file_system), *scheme));
}

std::string child_of(const std::string& uri, const std::string& name) {
  const auto options = scheme_of(uri) ? std::min(uri.find('?'), uri.size()) : uri.size();
  std::string folder = uri.substr(0, options);
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder + (folder.ends_with('/') ? "" : "/") + name + uri.substr(options);
}

}  // namespace storage
}  // namespace trireme
