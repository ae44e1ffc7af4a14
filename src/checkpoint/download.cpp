#include "checkpoint/download.h"

#include "checkpoint/manifest.h"
#include "storage/local_files.h"
#include "storage/paths.h"

namespace trireme::checkpoint {
namespace {

base::Result<std::string> read_if_any(storage::Files& files, const std::string& path) {
  TRIREME_ASSIGN(const bool there, files.exists(path));
  if (!there) return std::string();
  return files.read(path);
}

}  // namespace

base::Result<Contents> read_contents(storage::Files& files, const std::string& path) {
  Contents contents;
  const std::string manifest_path = path + "/" + kManifestName;
  TRIREME_ASSIGN(contents.manifest, read_if_any(files, manifest_path));
  TRIREME_ASSIGN(contents.metadata, read_if_any(files, path + "/" + kMetadataName));
  if (!contents.manifest.empty()) {
    TRIREME_ASSIGN(auto manifest, decode_manifest(contents.manifest), "{} cannot be used",
                   files.describe(manifest_path));
    contents.files = std::move(manifest.files);
    return contents;
  }
  // A folder that no run created: there are no checksums.
  TRIREME_ASSIGN(auto listed, files.list_files(path));
  for (auto& file : listed) {
    if (file.path.starts_with(storage::kOwnPrefix) || file.path == kMetadataName) continue;
    contents.files.push_back({std::move(file.path), file.size, {}});
  }
  if (contents.files.empty() && contents.metadata.empty()) {
    return base::error("no checkpoint at {}", files.describe(path));
  }
  return contents;
}

base::Result<void> download(storage::Files& files, const std::string& path, const Contents& contents,
                            const std::string& target) {
  TRIREME_TRY(files.get_folder(path, contents.files, target));
  if (contents.metadata.empty()) return {};
  return storage::write_file_atomically(target + "/" + kMetadataName, contents.metadata);
}

base::Result<void> download(storage::Files& files, const std::string& path, const std::string& target) {
  TRIREME_ASSIGN(const auto contents, read_contents(files, path));
  return download(files, path, contents, target);
}

}  // namespace trireme::checkpoint
