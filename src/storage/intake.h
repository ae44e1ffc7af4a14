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

// From here on one sync of the whole file system is cheaper than one per file.
inline constexpr std::size_t kManyFiles = 64;

enum class Durable { kNo, kYes };

// "could not store 'model.pt' (2.1 GB) as /data/run/checkpoint_000003/model.pt: No space left on device (errno 28);
// ...".
base::Error not_stored(const FoundFile& file, const std::string& target, int error_number);

// Takes files of one folder into another so that each appears under its name only when it is whole: copies lie under a
// temporary name until place(), which syncs first and renames after. What was not placed is gone with the Intake.
class Intake {
 public:
  // `count` files will come.
  Intake(Disk& disk, std::string source, std::string target, std::size_t count, Durable durable);
  Intake(const Intake&) = delete;
  Intake& operator=(const Intake&) = delete;
  ~Intake();

  // Makes the target.
  base::Result<void> begin();
  base::Result<FileRecord> copy(const FoundFile& file);
  // Without a copy where the file system can do that. The source has the file until all are placed: after an error
  // nothing is missing there.
  base::Result<FileRecord> move(const FoundFile& file);
  base::Result<void> place();

 private:
  struct Waiting {
    std::string temporary;
    std::string final;
    std::string moved_from;          // empty for a copy
    std::unique_ptr<OpenFile> file;  // null once it needs no sync of its own
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
  std::unique_ptr<OpenFolder> folder_;  // opened before the first write, so that sync_all() tells all errors
  std::set<std::string> folders_;       // below the target that get new names
  std::vector<Waiting> waiting_;
};

// Creates a file that nobody else writes, in `folder`. `path` is where.
int create_temporary(Disk& disk, const std::string& folder, std::string& path, std::unique_ptr<OpenFile>& file);

// Reads to the end; `bytes` is how many there were.
base::Result<std::string> checksum_of(OpenFile& file, const std::string& path, std::uint64_t& bytes);

}  // namespace trireme::storage
