#include "checkpoint/state_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <unordered_map>

#include "base/text.h"
#include "checkpoint/file_bytes.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/state_tree.h"
#include "storage/digest.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

// The name of a checkpoint's file for messages: "checkpoint_000003/state.safetensors".
std::string short_name(const fs::path& path) {
  fs::path folder = path.parent_path().filename();
  if (folder.native().starts_with("rank_")) folder = path.parent_path().parent_path().filename() / folder;
  return (folder / path.filename()).native();
}

// Relative to the folder, as returned by save_state(). Empty without a manifest.
base::Result<std::vector<storage::FileRecord>> committed_files(const fs::path& folder) {
  fs::path manifest_path = folder / kManifestName;
  std::string prefix;
  std::error_code ignored;
  if (!fs::exists(manifest_path, ignored) && is_rank_folder(folder)) {
    manifest_path = folder.parent_path() / kManifestName;
    prefix = folder.filename().native() + "/";
  }
  if (!fs::exists(manifest_path, ignored)) return std::vector<storage::FileRecord>{};
  TRIREME_ASSIGN(auto bytes, read_file(manifest_path));
  TRIREME_ASSIGN(auto manifest, decode_manifest(bytes.text()), "{}", manifest_path.native());
  std::vector<storage::FileRecord> files;
  for (auto& file : manifest.files) {
    if (!file.path.starts_with(prefix)) continue;
    file.path.erase(0, prefix.size());
    files.push_back(std::move(file));
  }
  return files;
}

class Loader {
 public:
  Loader(fs::path folder, const LoadOptions& options, std::vector<storage::FileRecord> expected)
      : folder_(std::move(folder)), options_(options), expected_(std::move(expected)) {}

  base::Result<FileBytes> open(const char* name) const {
    const auto other = options_.elsewhere.find(name);
    const std::string path = other == options_.elsewhere.end() ? (folder_ / name).native() : other->second;
    const auto record =
        std::find_if(expected_.begin(), expected_.end(), [&](const auto& file) { return file.path == name; });
    const bool known = record != expected_.end();
    std::string digest;
    std::string* wanted = known && options_.verify ? &digest : nullptr;
    TRIREME_ASSIGN(auto bytes, options_.map ? map_file(path) : read_file(path, wanted));
    if (!known) return bytes;
    if (bytes.size != record->size) {
      return damaged(
          name, fmt::format("it has {}, but the manifest lists {}", base::count_of(bytes.size, "byte"), record->size));
    }
    if (wanted && options_.map) digest = storage::digest_of(bytes.text());
    if (wanted && digest != record->xxh3) {
      return damaged(name, fmt::format("its checksum is {}, but the manifest lists {}", digest, record->xxh3));
    }
    return bytes;
  }

 private:
  base::Error damaged(const char* name, const std::string& how) const {
    return base::error("{} is damaged: {}; load an earlier checkpoint", short_name(folder_ / name), how);
  }

  fs::path folder_;
  const LoadOptions& options_;
  std::vector<storage::FileRecord> expected_;
};

// Other writers may not align tensors, but readers of elements need it.
Tensor tensor_in(const FileBytes& file, const TensorEntry& entry) {
  std::byte* data = file.data + entry.begin;
  if (entry.begin == entry.end) return Tensor(entry.dtype, entry.shape);
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(entry.dtype) == 0) {
    return Tensor::view(entry.dtype, entry.shape, data, file.owner);
  }
  Tensor copy(entry.dtype, entry.shape);
  std::memcpy(copy.data(), data, copy.num_bytes());
  return copy;
}

base::Result<void> check_version(const Header& header) {
  const auto found = header.metadata.find(kVersionKey);
  if (found == header.metadata.end() || found->second == kVersion) return {};
  return base::error("it has format version {}, but this program supports version {}: use a newer trireme",
                     found->second, kVersion);
}

base::Result<Dict> load_checked(const fs::path& folder, const LoadOptions& options,
                                std::vector<storage::FileRecord> expected) {
  const Loader loader(folder, options, std::move(expected));
  TRIREME_ASSIGN(const auto tree, loader.open(kTreeName));
  TRIREME_ASSIGN(const auto file, loader.open(kTensorsName));
  TRIREME_ASSIGN(const auto header, parse_header(file.text()), "{}", short_name(folder / kTensorsName));
  TRIREME_TRY(check_version(header), "{}", short_name(folder / kTensorsName));
  std::unordered_map<std::string_view, const TensorEntry*> entries;
  for (const auto& entry : header.entries) entries.emplace(entry.name, &entry);
  auto find = [&](const std::string& name) -> base::Result<Tensor> {
    const auto entry = entries.find(name);
    if (entry == entries.end())
      return base::error("it refers to the tensor '{}', which is not in {}", name, kTensorsName);
    return tensor_in(file, *entry->second);
  };
  TRIREME_ASSIGN(auto state, decode_state(tree.text(), find), "{} is damaged", short_name(folder / kTreeName));
  return state;
}

// In one step: each tensor alone would wait for its device.
base::Result<void> fetch(const Layout& layout) {
  std::vector<Tensor> tensors;
  for (const auto& place : layout.places) tensors.push_back(place.tensor);
  try {
    Tensor::fetch(tensors);
  } catch (const std::runtime_error& failed) {  // a device's error is not a bug
    return base::error("{}", failed.what());
  }
  return {};
}

}  // namespace

bool is_rank_folder(const std::filesystem::path& folder) {
  const std::string name = folder.filename().native();
  return name.starts_with("rank_") && name.size() > 5 && name.find_first_not_of("0123456789", 5) == std::string::npos;
}

base::Result<std::vector<fs::path>> rank_folders(const fs::path& checkpoint) {
  std::vector<fs::path> folders;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(checkpoint, failed)) {
    if (is_rank_folder(entry.path())) folders.push_back(entry.path());
  }
  if (failed) return base::error("could not list {}: {}", checkpoint.native(), failed.message());
  std::sort(folders.begin(), folders.end(), [](const fs::path& a, const fs::path& b) {
    return std::pair(a.native().size(), a.native()) < std::pair(b.native().size(), b.native());
  });
  return folders;
}

base::Result<std::vector<storage::FileRecord>> save_state(const std::string& folder, const Dict& state,
                                                          const SaveOptions& options) {
  TRIREME_ASSIGN(const auto image, lay_out(state), "could not save a state into {}", folder);
  FileContent tensors{kTensorsName, {image.tensors.head}};
  TRIREME_TRY(fetch(image.tensors), "could not save a state into {}", folder);
  for (const auto& place : image.tensors.places) {
    tensors.pieces.emplace_back(static_cast<const char*>(place.tensor.data()), place.tensor.num_bytes());
  }
  TRIREME_ASSIGN(auto records, write_files(folder, {std::move(tensors), {kTreeName, {image.tree}}}, options),
                 "could not save a state into {}", folder);
  return records;
}

base::Result<Dict> load_state(const std::string& folder, const LoadOptions& options) {
  fs::path path = fs::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "a/b/" names b
  std::error_code ignored;
  if (options.elsewhere.empty() && !fs::is_directory(path, ignored)) {
    return base::error("could not load a state: {} is not a folder", folder);
  }
  std::vector<storage::FileRecord> expected;
  if (options.expected) {
    expected = *options.expected;
  } else {
    TRIREME_ASSIGN(expected, committed_files(path), "could not load the state in {}", folder);
  }
  TRIREME_ASSIGN(auto state, load_checked(path, options, std::move(expected)), "could not load the state in {}",
                 folder);
  return state;
}

base::Result<Dict> load_safetensors(const std::string& path, const LoadOptions& options) {
  TRIREME_ASSIGN(const auto file, options.map ? map_file(path) : read_file(path));
  TRIREME_ASSIGN(const auto header, parse_header(file.text()), "could not load {}", path);
  Dict tensors;
  for (const auto& entry : header.entries) tensors.append(entry.name, tensor_in(file, entry));
  return tensors;
}

}  // namespace trireme::checkpoint
