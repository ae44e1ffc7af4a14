#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// Files of the local machine, with what POSIX wants for them to survive a crash.

namespace trireme::storage {

base::Result<std::string> read_file(const std::string& path);

// Readers see the old content or the new one, also after a crash: temporary file, fsync, rename, fsync of the folder.
base::Result<void> write_file_atomically(const std::string& path, std::string_view content);

// Makes the folder and those above it; tells apart "not allowed", "a file is in the way" and "no space".
base::Result<void> make_folder(const std::string& path);

base::Result<void> sync_folder(const std::string& path);

struct FileEntry {
  std::string path;  // relative to the folder
  std::uint64_t size = 0;
};
// Every regular file below the folder, sorted by path.
base::Result<std::vector<FileEntry>> list_files(const std::string& folder);

// Copies the folder's content into `target` (made where absent; other files in it stay), each file fsynced.
base::Result<void> copy_folder(const std::string& source, const std::string& target);

// Nothing there is fine.
base::Result<void> remove_folder(const std::string& path);

}  // namespace trireme::storage
