#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/export.h"

// Remote storage. trireme::data provides S3, GCS, Azure and HDFS; a program can register its own. Local paths do not
// need it.

namespace trireme {

struct StoredFile {
  std::string path;  // relative to the listed folder
  std::uint64_t size = 0;
};

// Paths are the part after "scheme://". Methods throw a std::exception if the storage fails. Calls are retried with
// exponential backoff, so they must be idempotent. Called from several threads concurrently.
class TRIREME_API FileSystem {
 public:
  virtual ~FileSystem() = default;

  // For messages: "s3", "gcs", ...
  virtual std::string type_name() const = 0;

  virtual bool exists(const std::string& path) = 0;  // a file or a folder
  virtual std::string read(const std::string& path) = 0;
  // Atomic: readers see either the old or the new content.
  virtual void write(const std::string& path, std::string_view content) = 0;
  // Uses a multipart upload for large files. Atomic: the object appears complete or not at all.
  virtual void upload(const std::string& local_file, const std::string& path) = 0;
  virtual void download(const std::string& path, const std::string& local_file) = 0;
  // All files below the folder, recursively. A missing folder is empty.
  virtual std::vector<StoredFile> list_files(const std::string& folder) = 0;
  // Names of the direct subfolders.
  virtual std::vector<std::string> list_folders(const std::string& folder) = 0;
  virtual void make_folder(const std::string& path) = 0;
  // Removing a missing file or folder is not an error.
  virtual void remove_file(const std::string& path) = 0;
  virtual void remove_folder(const std::string& path) = 0;
};

// Creates a file system for "s3://bucket/...". Register it before init(), so that workers have it too.
using FileSystemFactory = std::function<std::shared_ptr<FileSystem>(const std::string& uri)>;
TRIREME_API void register_filesystem(const std::string& scheme, FileSystemFactory factory);

}  // namespace trireme
