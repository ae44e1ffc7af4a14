#pragma once

#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>

#include "trireme/filesystem.h"

namespace trireme::tests {

// An in-memory object store without folders. `before` is called before each operation and may throw.
class FakeStore final : public FileSystem {
 public:
  std::function<void(const std::string& call, const std::string& path)> before = [](const auto&, const auto&) {};

  std::map<std::string, std::string> objects() const {
    std::lock_guard lock(mutex_);
    return objects_;
  }
  void put(const std::string& path, std::string content) {
    std::lock_guard lock(mutex_);
    objects_[path] = std::move(content);
  }

  std::string type_name() const override { return "fake"; }
  bool exists(const std::string& path) override {
    before("exists", path);
    std::lock_guard lock(mutex_);
    return objects_.contains(path) || !below(path).empty();
  }
  std::string read(const std::string& path) override {
    before("read", path);
    std::lock_guard lock(mutex_);
    return at(path);
  }
  void write(const std::string& path, std::string_view content) override {
    before("write", path);
    put(path, std::string(content));
  }
  void upload(const std::string& local_file, const std::string& path) override {
    before("upload", path);
    std::ifstream file(local_file, std::ios::binary);
    if (!file) throw std::runtime_error("no local file " + local_file);
    put(path, std::string(std::istreambuf_iterator<char>(file), {}));
  }
  void download(const std::string& path, const std::string& local_file) override {
    before("download", path);
    std::lock_guard lock(mutex_);
    std::ofstream(local_file, std::ios::binary) << at(path);
  }
  std::vector<StoredFile> list_files(const std::string& folder) override {
    before("list_files", folder);
    std::lock_guard lock(mutex_);
    std::vector<StoredFile> files;
    for (const auto& path : below(folder)) files.push_back({path.substr(folder.size() + 1), objects_[path].size()});
    return {files.rbegin(), files.rend()};  // in unspecified order
  }
  std::vector<std::string> list_folders(const std::string& folder) override {
    before("list_folders", folder);
    std::lock_guard lock(mutex_);
    std::set<std::string> folders;
    for (const auto& path : below(folder)) {
      const auto rest = path.substr(folder.size() + 1);
      if (rest.find('/') != std::string::npos) folders.insert(rest.substr(0, rest.find('/')));
    }
    return {folders.rbegin(), folders.rend()};
  }
  void make_folder(const std::string& path) override { before("make_folder", path); }
  void remove_file(const std::string& path) override {
    before("remove_file", path);
    std::lock_guard lock(mutex_);
    objects_.erase(path);
  }
  void remove_folder(const std::string& path) override {
    before("remove_folder", path);
    std::lock_guard lock(mutex_);
    for (const auto& each : below(path)) objects_.erase(each);
  }

 private:
  std::vector<std::string> below(const std::string& folder) const {
    std::vector<std::string> paths;
    for (const auto& [path, content] : objects_) {
      if (path.starts_with(folder + "/")) paths.push_back(path);
    }
    return paths;
  }
  const std::string& at(const std::string& path) const {
    const auto found = objects_.find(path);
    if (found == objects_.end()) throw std::runtime_error("404");
    return found->second;
  }

  mutable std::mutex mutex_;
  std::map<std::string, std::string> objects_;
};

}  // namespace trireme::tests
