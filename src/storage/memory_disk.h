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

// A disk in memory that keeps apart what POSIX promises to keep and what it does not: the content of a file is durable
// once the file was synced, a change of names once the folder was, and a rename once the folder it goes to was.
// Operations are counted, and any of them can be made to fail or be the last before a crash. Tests walk through all of
// them.
class MemoryDisk final : public Disk {
 public:
  MemoryDisk();

  // How many operations there were, and what they did ("rename /a -> /b").
  std::size_t operations() const;
  std::vector<std::string> history() const;

  // `count` operations from this number on fail and do nothing; a write leaves half of itself.
  void fail_at(std::size_t operation, int error_number, std::size_t count = 1);
  // The machine stops before this operation: it fails, and so does everything after it.
  void crash_at(std::size_t operation);
  // The disk when the machine is up again: all that was durable, and of the rest what the seed chooses, writes torn.
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
    NodePointer node;  // null: the name goes
  };
  // One change of names, which a crash keeps or loses as a whole.
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
  std::list<Change> changes_;  // oldest first; a durable one waits for those before it
  std::vector<std::string> history_;
  std::size_t fail_from_ = std::numeric_limits<std::size_t>::max();
  std::size_t fail_count_ = 0;
  int fail_with_ = 0;
  std::size_t crash_at_ = std::numeric_limits<std::size_t>::max();
};

}  // namespace trireme::storage
