#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/export.h"

// Storage that is not a folder of this machine. trireme::arrow brings S3, GCS, Azure and HDFS; a program may bring its
// own. Local paths need none of this.

namespace trireme {

struct StoredFile {
  std::string path;  // relative to the folder that was listed
  std::uint64_t size = 0;
};

// Paths are what comes after "scheme://". Methods throw a std::exception where the storage says no; they are tried
// again with growing pauses, so they must be safe to repeat. Called from several threads at once.
class TRIREME_API FileSystem {
 public:
  virtual ~FileSystem() = default;

  // "s3", "gcs", ...: for messages.
  virtual std::string type_name() const = 0;

  virtual bool exists(const std::string& path) = 0;  // a file or a folder
  virtual std::string read(const std::string& path) = 0;
  // Readers see the old content or the new one.
  virtual void write(const std::string& path, std::string_view content) = 0;
  // In parts where the file is large; the object appears whole or not at all.
  virtual void upload(const std::string& local_file, const std::string& path) = 0;
  virtual void download(const std::string& path, const std::string& local_file) = 0;
  // Every file below the folder. A folder that is not there is empty.
  virtual std::vector<StoredFile> list_files(const std::string& folder) = 0;
  // Names of the folders in it, one level.
  virtual std::vector<std::string> list_folders(const std::string& folder) = 0;
  virtual void make_folder(const std::string& path) = 0;
  // Nothing there is fine.
  virtual void remove_file(const std::string& path) = 0;
  virtual void remove_folder(const std::string& path) = 0;
};

// Makes a file system for "s3://bucket/...". Register before init(): workers look there too.
using FileSystemFactory = std::function<std::shared_ptr<FileSystem>(const std::string& uri)>;
TRIREME_API void register_filesystem(const std::string& scheme, FileSystemFactory factory);

}  // namespace trireme
