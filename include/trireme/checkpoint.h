#pragma once

#include <string>

#include "trireme/export.h"
#include "trireme/value.h"

namespace trireme {

// A folder with what is needed to go on, and JSON metadata beside it.
class TRIREME_API Checkpoint {
 public:
  explicit Checkpoint(std::string path) : path_(std::move(path)) {}
  // Throws std::runtime_error where there is no such folder.
  static Checkpoint from_directory(const std::string& path);

  const std::string& path() const { return path_; }
  // Copies the files; returns `path`.
  std::string to_directory(const std::string& path) const;

  // {} where nothing was set.
  Dict get_metadata() const;
  void set_metadata(const Dict& metadata);
  void update_metadata(const Dict& metadata);

  bool operator==(const Checkpoint&) const = default;

 private:
  std::string path_;
};

}  // namespace trireme
