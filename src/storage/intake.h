#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/disk.h"
#include "storage/files.h"
#include "storage/walk.h"

namespace trireme::storage {

// From this number of files, one sync of the file system is cheaper than one sync per file.
inline constexpr std::size_t kManyFiles = 64;

enum class Durable { kNo, kYes };

// "could not store 'model.pt' (2.1 GB) as /data/run/checkpoint_000003/model.pt: No space left on device (errno 28);
// ...".
base::Error not_stored(const FoundFile& file, const std::string& target, int error_number);

// Stores files of one folder in another so that each appears under its name only when it is complete. Copies have a
// temporary name until place(), which first syncs and then renames them. The destructor deletes files that were not
// placed.
class Intake {
 public:
  // `count`: the number of files to store.
  Intake(Disk& disk, std::string source, std::string target, std::size_t count, Durable durable);
  Intake(const Intake&) = delete;
  Intake& operator=(const Intake&) = delete;
  ~Intake();

  // Creates the target.
  base::Result<void> begin();
  base::Result<FileRecord> copy(const FoundFile& file);
  // Avoids a copy if the file system can. The source keeps the file until all are placed, so after an error it is still
  // complete.
  base::Result<FileRecord> move(const FoundFile& file);
  base::Result<void> place();

 private:
  struct Waiting {
    std::string temporary;
    std::string final;
    std::string moved_from;          // empty for a copy
    std::unique_ptr<OpenFile> file;  // null if it needs no separate sync
  };

  base::Result<void> make_folders_of(const std::string& relative);
  base::Result<std::string> read_through(OpenFile& from, const FoundFile& file, OpenFile* to);
  base::Result<void> sync_files();
  base::Result<void> rename_files();
  base::Result<void> sync_folders();
  bool many() const { return count_ > kManyFiles; }

  Disk& disk_;
  const std::string source_;
  const std::string target_;
  const std::size_t count_;
  const Durable durable_;
  std::unique_ptr<char[]> block_;
  std::size_t block_size_ = 0;
  std::unique_ptr<OpenFolder> folder_;  // opened before the first write, so that sync_all() reports all errors
  std::set<std::string> folders_;       // folders below the target that get new entries
  std::vector<Waiting> waiting_;
};

// Creates a file with an unused name in `folder` and sets `path`.
int create_temporary(Disk& disk, const std::string& folder, std::string& path, std::unique_ptr<OpenFile>& file);

// Reads to the end and sets `bytes` to the number of bytes read.
base::Result<std::string> checksum_of(OpenFile& file, const std::string& path, std::uint64_t& bytes);

}  // namespace trireme::storage
