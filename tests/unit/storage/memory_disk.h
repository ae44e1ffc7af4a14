#pragma once

#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "storage/disk.h"

namespace trireme::storage {

// An in-memory disk that tracks what POSIX guarantees to survive a crash: the content of a file once the file is
// synced, a name change once the folder is synced, and a rename once the destination folder is synced. Operations are
// counted; each can be made to fail or to be the last before a crash. Tests iterate over all of them.
class MemoryDisk final : public Disk {
 public:
  MemoryDisk();

  // The number of operations, and a description of each ("rename /a -> /b").
  std::size_t operations() const;
  std::vector<std::string> history() const;

  // Makes `count` operations starting with this number fail without effect; a failing write writes half of its bytes.
  void fail_at(std::size_t operation, int error_number, std::size_t count = 1);
  // The machine crashes before this operation, which fails, as do all later ones.
  void crash_at(std::size_t operation);
  // The disk after a reboot: everything durable, plus a selection of the rest that depends on the seed, with torn
  // writes.
  std::shared_ptr<MemoryDisk> after_crash(std::uint64_t seed) const;

  int open(const std::string& path, std::unique_ptr<OpenFile>& file) override;
  int create(const std::string& path, std::unique_ptr<OpenFile>& file) override;
  int open_folder(const std::string& path, std::unique_ptr<OpenFolder>& folder) override;
  int rename(const std::string& from, const std::string& to) override;
  int link(const std::string& from, const std::string& to) override;
  int remove_file(const std::string& path) override;
  int make_folder(const std::string& path) override;
  int remove_folder(const std::string& path) override;
  int list(const std::string& folder, std::vector<std::string>& names) override;
  int look(const std::string& path, Status& status) override;
  int look_through(const std::string& path, Status& status) override;

 private:
  friend class MemoryFile;
  friend class MemoryFolder;

  struct Node;
  using NodePointer = std::shared_ptr<Node>;  // shared by names, open files and changes, as inodes are
  using Names = std::map<std::string, NodePointer>;
  struct Edit {
    NodePointer folder;
    std::string name;
    NodePointer node;  // null: the name is removed
  };
  // One change of names. A crash keeps or loses it completely.
  struct Change {
    std::vector<Edit> edits;
    NodePointer unsynced;  // the folder to sync before it is durable; null afterwards
  };

  int step(std::string what);
  NodePointer make_node(bool folder);
  NodePointer find(const std::string& path) const;
  int find_parent(const std::string& path, NodePointer& folder, std::string& name) const;
  void change(std::vector<Edit> edits);
  void synced(const NodePointer& folder);
  void sync_everything();
  static void apply(const Change& change, Names Node::*names);

  mutable std::mutex mutex_;
  NodePointer root_;
  std::uint64_t last_id_ = 0;
  std::list<Change> changes_;  // oldest first; a durable change waits for earlier ones
  std::vector<std::string> history_;
  std::size_t fail_from_ = std::numeric_limits<std::size_t>::max();
  std::size_t fail_count_ = 0;
  int fail_with_ = 0;
  std::size_t crash_at_ = std::numeric_limits<std::size_t>::max();
};

}  // namespace trireme::storage
