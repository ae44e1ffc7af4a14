#pragma once

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/filesystem.h"

namespace trireme::tests {

// Remote storage for tests: a folder of this machine that is only accessed through the interface.
class FolderFileSystem final : public FileSystem {
 public:
  explicit FolderFileSystem(std::filesystem::path root) : root_(std::move(root)) {}

  // Every call fails while it is away.
  void set_away(bool away) { away_ = away; }

  std::string type_name() const override { return "folder"; }
  bool exists(const std::string& path) override { return std::filesystem::exists(at(path)); }
  std::string read(const std::string& path) override {
    std::ifstream file(at(path), std::ios::binary);
    if (!file) throw std::runtime_error("no such object: " + path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& path, std::string_view content) override {
    const auto target = at(path);
    std::filesystem::create_directories(target.parent_path());
    const auto fresh = target.parent_path() / (".new_" + std::to_string(++writes_));
    std::ofstream(fresh, std::ios::binary) << content;
    std::filesystem::rename(fresh, target);
  }
  void upload(const std::string& local_file, const std::string& path) override {
    std::ifstream file(local_file, std::ios::binary);
    write(path, std::string(std::istreambuf_iterator<char>(file), {}));
  }
  void download(const std::string& path, const std::string& local_file) override {
    std::ofstream(local_file, std::ios::binary) << read(path);
  }
  std::vector<StoredFile> list_files(const std::string& folder) override {
    std::vector<StoredFile> files;
    const auto top = at(folder);
    if (!std::filesystem::exists(top)) return files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(top)) {
      if (entry.is_regular_file()) files.push_back({entry.path().lexically_relative(top), entry.file_size()});
    }
    return files;
  }
  std::vector<std::string> list_folders(const std::string& folder) override {
    std::vector<std::string> names;
    const auto top = at(folder);
    if (!std::filesystem::exists(top)) return names;
    for (const auto& entry : std::filesystem::directory_iterator(top)) {
      if (entry.is_directory()) names.push_back(entry.path().filename());
    }
    return names;
  }
  void make_folder(const std::string& path) override { std::filesystem::create_directories(at(path)); }
  void remove_file(const std::string& path) override { std::filesystem::remove(at(path)); }
  void remove_folder(const std::string& path) override { std::filesystem::remove_all(at(path)); }

 private:
  std::filesystem::path at(const std::string& path) const {
    if (away_) throw std::runtime_error("the storage is away");
    return root_ / path;
  }

  const std::filesystem::path root_;
  std::atomic<bool> away_ = false;
  std::atomic<int> writes_ = 0;
};

}  // namespace trireme::tests
