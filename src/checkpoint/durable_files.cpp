#include "checkpoint/durable_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <thread>

#include "base/fd.h"
#include "checkpoint/disk_writer.h"
#include "storage/digest.h"
#include "storage/disk_error.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using storage::failed;

// Below this size, a thread costs more than it saves.
constexpr std::size_t kWorthADigestThread = std::size_t{1} << 20;

std::string digest_of(const std::vector<std::string_view>& pieces) {
  storage::Digest digest;
  for (std::string_view piece : pieces) digest.add(piece);
  return digest.hex();
}

std::uint64_t size_of(const std::vector<std::string_view>& pieces) {
  std::uint64_t size = 0;
  for (std::string_view piece : pieces) size += piece.size();
  return size;
}

// A file with a temporary name, removed by the destructor unless it was published.
class PendingFile {
 public:
  static base::Result<std::unique_ptr<PendingFile>> create(std::string path) {
    // Another thread may write the same file, as may a process with this pid on another machine that shares the folder.
    for (int i = 0;; ++i) {
      const fs::path target(path);
      std::string temporary =
          (target.parent_path() / fmt::format(".{}.{}-{}.tmp", target.filename().native(), ::getpid(), i)).native();
      base::Fd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
      if (fd.valid()) {
        return std::unique_ptr<PendingFile>(new PendingFile(std::move(path), std::move(temporary), std::move(fd)));
      }
      if (errno != EEXIST) return failed("create", temporary, errno);
    }
  }
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;
  ~PendingFile() {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }

  base::Result<void> write(const std::vector<std::string_view>& pieces, bool durable) {
    return write_pieces(fd_.get(), path_, pieces, durable);
  }

  base::Result<void> publish() {
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) return failed("rename a temporary file to", path_, errno);
    temporary_.clear();
    return {};
  }

  const std::string& path() const { return path_; }

 private:
  PendingFile(std::string path, std::string temporary, base::Fd fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(std::move(fd)) {}

  std::string path_;
  std::string temporary_;
  base::Fd fd_;
};

base::Result<storage::FileRecord> write_one(PendingFile& file, const FileContent& content, const SaveOptions& options) {
  storage::FileRecord record{content.name, size_of(content.pieces), {}};
  base::Result<void> written;
  if (options.threads == 1 || record.size < kWorthADigestThread) {
    record.xxh3 = digest_of(content.pieces);
    written = file.write(content.pieces, options.durable);
  } else {
    std::jthread hashing([&] { record.xxh3 = digest_of(content.pieces); });
    written = file.write(content.pieces, options.durable);
  }
  if (!written) return std::move(written).error();
  return record;
}

base::Result<void> sync_folder(const fs::path& path) {
  base::Fd folder(::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return failed("open the folder", path, errno);
  if (::fsync(folder.get()) != 0) return failed("sync the folder", path, errno);
  return {};
}

// A crash can lose a new folder unless its parent is synced as well.
base::Result<void> make_folder(const fs::path& path, bool durable) {
  std::error_code failure;
  std::vector<fs::path> above;
  for (fs::path each = path; !each.empty() && !fs::exists(each, failure); each = each.parent_path()) {
    above.push_back(each.parent_path());
  }
  if (above.empty() && !fs::is_directory(path, failure)) return base::error("{} is not a folder", path.native());
  fs::create_directories(path, failure);
  if (failure) return failed("create the folder", path, failure.value());
  for (const auto& folder : above) {
    if (durable) TRIREME_TRY(sync_folder(folder));
  }
  return {};
}

base::Result<void> publish(std::vector<std::unique_ptr<PendingFile>>& files, const std::string& folder, bool durable) {
  const std::string& last = files.back()->path();
  const bool replaced = ::unlink(last.c_str()) == 0;
  if (!replaced && errno != ENOENT) return failed("replace", last, errno);
  if (replaced && durable) TRIREME_TRY(sync_folder(folder));
  for (auto& file : files) TRIREME_TRY(file->publish());
  if (durable) TRIREME_TRY(sync_folder(folder));
  return {};
}

}  // namespace

base::Result<std::vector<storage::FileRecord>> write_files(const std::string& folder,
                                                           const std::vector<FileContent>& files,
                                                           const SaveOptions& options) {
  TRIREME_TRY(make_folder(folder, options.durable));
  std::vector<std::unique_ptr<PendingFile>> pending;
  std::vector<storage::FileRecord> records;
  for (const auto& content : files) {
    TRIREME_ASSIGN(auto file, PendingFile::create((fs::path(folder) / content.name).native()));
    TRIREME_ASSIGN(auto record, write_one(*file, content, options));
    pending.push_back(std::move(file));
    records.push_back(std::move(record));
  }
  TRIREME_TRY(publish(pending, folder, options.durable));
  return records;
}

}  // namespace trireme::checkpoint
