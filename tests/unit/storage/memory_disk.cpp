#include "unit/storage/memory_disk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <random>

namespace trireme::storage {

struct MemoryDisk::Node {
  bool folder = false;
  std::uint64_t id = 0;
  std::string content;
  std::string durable_content;
  Names names;
  Names durable_names;
};

namespace {

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

using Random = std::mt19937_64;

// The possible result of a crash during an unsynced write: any length in between, and missing blocks.
std::string torn(const std::string& durable, const std::string& written, Random& random) {
  if (durable == written || random() % 3 == 0) return durable;
  if (random() % 2 == 0) return written;
  constexpr std::size_t kBlock = 5;  // small, because tests write little
  std::string content = written.substr(0, random() % (written.size() + 1));
  for (std::size_t begin = 0; begin < content.size(); begin += kBlock) {
    if (random() % 2 == 0) continue;
    for (std::size_t i = begin; i < std::min(begin + kBlock, content.size()); ++i) {
      content[i] = i < durable.size() ? durable[i] : '\0';
    }
  }
  return content;
}

}  // namespace

class MemoryFile final : public OpenFile {
 public:
  MemoryFile(MemoryDisk& disk, MemoryDisk::NodePointer node, std::string path)
      : disk_(disk), node_(std::move(node)), path_(std::move(path)) {}

  int read(char* buffer, std::size_t size, std::size_t& got) override {
    std::lock_guard lock(disk_.mutex_);
    if (int failure = disk_.step("read " + path_)) return failure;
    const std::string_view rest = std::string_view(node_->content).substr(std::min(position_, node_->content.size()));
    got = rest.copy(buffer, size);
    position_ += got;
    return 0;
  }

  int write(std::string_view bytes) override {
    std::lock_guard lock(disk_.mutex_);
    const int failure = disk_.step("write " + path_);
    if (failure) bytes = bytes.substr(0, bytes.size() / 2);
    node_->content += bytes;
    return failure;
  }

  void start_sync() override {}

  int sync() override {
    std::lock_guard lock(disk_.mutex_);
    if (int failure = disk_.step("sync " + path_)) return failure;
    node_->durable_content = node_->content;
    return 0;
  }

  int close() override {
    std::lock_guard lock(disk_.mutex_);
    return disk_.step("close " + path_);
  }

 private:
  MemoryDisk& disk_;
  MemoryDisk::NodePointer node_;
  const std::string path_;
  std::size_t position_ = 0;
};

class MemoryFolder final : public OpenFolder {
 public:
  MemoryFolder(MemoryDisk& disk, MemoryDisk::NodePointer node, std::string path)
      : disk_(disk), node_(std::move(node)), path_(std::move(path)) {}

  int sync() override {
    std::lock_guard lock(disk_.mutex_);
    if (int failure = disk_.step("sync folder " + path_)) return failure;
    disk_.synced(node_);
    return 0;
  }

  int sync_all() override {
    std::lock_guard lock(disk_.mutex_);
    if (int failure = disk_.step("sync all " + path_)) return failure;
    disk_.sync_everything();
    return 0;
  }

 private:
  MemoryDisk& disk_;
  MemoryDisk::NodePointer node_;
  const std::string path_;
};

MemoryDisk::MemoryDisk() : root_(make_node(true)) {}

std::size_t MemoryDisk::operations() const {
  std::lock_guard lock(mutex_);
  return history_.size();
}

std::vector<std::string> MemoryDisk::history() const {
  std::lock_guard lock(mutex_);
  return history_;
}

void MemoryDisk::fail_at(std::size_t operation, int error_number, std::size_t count) {
  std::lock_guard lock(mutex_);
  fail_from_ = operation;
  fail_with_ = error_number;
  fail_count_ = count;
}

void MemoryDisk::crash_at(std::size_t operation) {
  std::lock_guard lock(mutex_);
  crash_at_ = operation;
}

std::shared_ptr<MemoryDisk> MemoryDisk::after_crash(std::uint64_t seed) const {
  std::lock_guard lock(mutex_);
  Random random(seed);
  auto after = std::make_shared<MemoryDisk>();
  std::map<const Node*, Names> names;
  auto names_of = [&](const NodePointer& folder) -> Names& {
    return names.try_emplace(folder.get(), folder->durable_names).first->second;
  };
  for (const auto& change : changes_) {
    if (change.unsynced && random() % 2 == 0) continue;
    for (const auto& edit : change.edits) {
      if (edit.node) {
        names_of(edit.folder)[edit.name] = edit.node;
      } else {
        names_of(edit.folder).erase(edit.name);
      }
    }
  }
  std::map<const Node*, NodePointer> copies;
  std::function<NodePointer(const NodePointer&)> copy = [&](const NodePointer& node) -> NodePointer {
    auto& made = copies[node.get()];
    if (made) return made;
    auto copied = made = after->make_node(node->folder);
    copied->content = copied->durable_content = torn(node->durable_content, node->content, random);
    if (node->folder) {
      for (const auto& [name, below] : names_of(node)) copied->names[name] = copy(below);
    }
    copied->durable_names = copied->names;
    return copied;
  };
  after->root_ = copy(root_);
  return after;
}

int MemoryDisk::step(std::string what) {
  const std::size_t number = history_.size();
  history_.push_back(std::move(what));
  if (number >= crash_at_) return EIO;
  if (number >= fail_from_ && number - fail_from_ < fail_count_) return fail_with_;
  return 0;
}

MemoryDisk::NodePointer MemoryDisk::make_node(bool folder) {
  auto node = std::make_shared<Node>();
  node->folder = folder;
  node->id = ++last_id_;
  return node;
}

MemoryDisk::NodePointer MemoryDisk::find(const std::string& path) const {
  NodePointer node = root_;
  for (const auto& part : parts_of(path)) {
    const auto found = node->names.find(part);
    if (found == node->names.end()) return nullptr;
    node = found->second;
  }
  return node;
}

int MemoryDisk::find_parent(const std::string& path, NodePointer& folder, std::string& name) const {
  auto parts = parts_of(path);
  if (parts.empty()) return EEXIST;
  name = std::move(parts.back());
  folder = root_;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    const auto found = folder->names.find(parts[i]);
    if (found == folder->names.end()) return ENOENT;
    folder = found->second;
  }
  return folder->folder ? 0 : ENOTDIR;
}

void MemoryDisk::apply(const Change& change, Names Node::*names) {
  for (const auto& edit : change.edits) {
    if (edit.node) {
      (*edit.folder.*names)[edit.name] = edit.node;
    } else {
      (*edit.folder.*names).erase(edit.name);
    }
  }
}

void MemoryDisk::change(std::vector<Edit> edits) {
  Change made{std::move(edits), {}};
  made.unsynced = made.edits.back().folder;
  apply(made, &Node::names);
  changes_.push_back(std::move(made));
}

void MemoryDisk::synced(const NodePointer& folder) {
  for (auto& each : changes_) {
    if (each.unsynced == folder) each.unsynced = nullptr;
  }
  while (!changes_.empty() && !changes_.front().unsynced) {
    apply(changes_.front(), &Node::durable_names);
    changes_.pop_front();
  }
}

void MemoryDisk::sync_everything() {
  for (const auto& each : changes_) apply(each, &Node::durable_names);
  changes_.clear();
  std::function<void(Node&)> settle = [&](Node& node) {
    node.durable_content = node.content;
    for (const auto& [name, below] : node.names) settle(*below);
  };
  settle(*root_);
}

int MemoryDisk::open(const std::string& path, std::unique_ptr<OpenFile>& file) {
  std::lock_guard lock(mutex_);
  if (int failure = step("open " + path)) return failure;
  auto node = find(path);
  if (!node) return ENOENT;
  if (node->folder) return EISDIR;
  file = std::make_unique<MemoryFile>(*this, std::move(node), path);
  return 0;
}

int MemoryDisk::create(const std::string& path, std::unique_ptr<OpenFile>& file) {
  std::lock_guard lock(mutex_);
  if (int failure = step("create " + path)) return failure;
  NodePointer folder;
  std::string name;
  if (int failure = find_parent(path, folder, name)) return failure;
  if (folder->names.contains(name)) return EEXIST;
  auto node = make_node(false);
  change({{folder, name, node}});
  file = std::make_unique<MemoryFile>(*this, std::move(node), path);
  return 0;
}

int MemoryDisk::open_folder(const std::string& path, std::unique_ptr<OpenFolder>& folder) {
  std::lock_guard lock(mutex_);
  if (int failure = step("open folder " + path)) return failure;
  auto node = find(path);
  if (!node) return ENOENT;
  if (!node->folder) return ENOTDIR;
  folder = std::make_unique<MemoryFolder>(*this, std::move(node), path);
  return 0;
}

int MemoryDisk::rename(const std::string& from, const std::string& to) {
  std::lock_guard lock(mutex_);
  if (int failure = step(fmt::format("rename {} -> {}", from, to))) return failure;
  NodePointer from_folder;
  NodePointer to_folder;
  std::string from_name;
  std::string to_name;
  if (int failure = find_parent(from, from_folder, from_name)) return failure;
  if (int failure = find_parent(to, to_folder, to_name)) return failure;
  const auto moved = from_folder->names.find(from_name);
  if (moved == from_folder->names.end()) return ENOENT;
  const auto node = moved->second;
  if (const auto there = to_folder->names.find(to_name); there != to_folder->names.end()) {
    if (there->second->folder && !node->folder) return EISDIR;
    if (!there->second->folder && node->folder) return ENOTDIR;
    if (!there->second->names.empty()) return ENOTEMPTY;
  }
  change({{from_folder, from_name, nullptr}, {to_folder, to_name, node}});
  return 0;
}

int MemoryDisk::link(const std::string& from, const std::string& to) {
  std::lock_guard lock(mutex_);
  if (int failure = step(fmt::format("link {} -> {}", from, to))) return failure;
  const auto node = find(from);
  NodePointer folder;
  std::string name;
  if (int failure = find_parent(to, folder, name)) return failure;
  if (!node) return ENOENT;
  if (node->folder) return EPERM;
  if (folder->names.contains(name)) return EEXIST;
  change({{folder, name, node}});
  return 0;
}

int MemoryDisk::remove_file(const std::string& path) {
  std::lock_guard lock(mutex_);
  if (int failure = step("remove " + path)) return failure;
  NodePointer folder;
  std::string name;
  if (int failure = find_parent(path, folder, name)) return failure;
  const auto found = folder->names.find(name);
  if (found == folder->names.end()) return ENOENT;
  if (found->second->folder) return EISDIR;
  change({{folder, name, nullptr}});
  return 0;
}

int MemoryDisk::make_folder(const std::string& path) {
  std::lock_guard lock(mutex_);
  if (int failure = step("make folder " + path)) return failure;
  NodePointer folder;
  std::string name;
  if (int failure = find_parent(path, folder, name)) return failure;
  if (folder->names.contains(name)) return EEXIST;
  change({{folder, name, make_node(true)}});
  return 0;
}

int MemoryDisk::remove_folder(const std::string& path) {
  std::lock_guard lock(mutex_);
  if (int failure = step("remove folder " + path)) return failure;
  NodePointer folder;
  std::string name;
  if (int failure = find_parent(path, folder, name)) return failure;
  const auto found = folder->names.find(name);
  if (found == folder->names.end()) return ENOENT;
  if (!found->second->folder) return ENOTDIR;
  if (!found->second->names.empty()) return ENOTEMPTY;
  change({{folder, name, nullptr}});
  return 0;
}

int MemoryDisk::list(const std::string& folder, std::vector<std::string>& names) {
  std::lock_guard lock(mutex_);
  if (int failure = step("list " + folder)) return failure;
  const auto node = find(folder);
  if (!node) return ENOENT;
  if (!node->folder) return ENOTDIR;
  names.clear();
  for (const auto& [name, below] : node->names) names.push_back(name);
  return 0;
}

int MemoryDisk::look(const std::string& path, Status& status) {
  std::lock_guard lock(mutex_);
  if (int failure = step("look " + path)) return failure;
  const auto node = find(path);
  if (!node) return ENOENT;
  status = {node->folder ? Kind::kFolder : Kind::kFile, node->content.size(), 1, {0, node->id}};
  return 0;
}

int MemoryDisk::look_through(const std::string& path, Status& status) { return look(path, status); }

}  // namespace trireme::storage
