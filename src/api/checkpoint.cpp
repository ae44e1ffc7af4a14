#include "trireme/checkpoint.h"

#include <filesystem>

#include "base/json.h"
#include "storage/local_files.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMetadataName = ".metadata.json";

template <typename T>
void throw_on_error(const base::Result<T>& result) {
  if (!result) throw std::runtime_error(result.error().message());
}

}  // namespace

Checkpoint Checkpoint::from_directory(const std::string& path) {
  if (!fs::is_directory(path)) throw std::runtime_error(fmt::format("there is no checkpoint folder {}", path));
  return Checkpoint(fs::absolute(path).native());
}

std::string Checkpoint::to_directory(const std::string& path) const {
  throw_on_error(storage::copy_folder(path_, path));
  return path;
}

Dict Checkpoint::get_metadata() const {
  const fs::path file = fs::path(path_) / kMetadataName;
  if (!fs::exists(file)) return {};
  auto text = storage::read_file(file);
  throw_on_error(text);
  auto metadata = base::parse_json_dict(*text);
  throw_on_error(metadata);
  return *std::move(metadata);
}

void Checkpoint::set_metadata(const Dict& metadata) {
  throw_on_error(storage::write_file_atomically(fs::path(path_) / kMetadataName, base::to_json(metadata)));
}

void Checkpoint::update_metadata(const Dict& metadata) {
  Dict merged = get_metadata();
  for (const auto& [key, value] : metadata) merged[key] = value;
  set_metadata(merged);
}

}  // namespace trireme
