#pragma once

#include <memory>
#include <string>

#include "trireme/export.h"
#include "trireme/value.h"

namespace trireme {

// A folder with the state to resume from, and JSON metadata. The folder may be in remote storage, as a URI
// ("s3://bucket/run/checkpoint_000003"); see filesystem.h.
class TRIREME_API Checkpoint {
 public:
  explicit Checkpoint(std::string path) : path_(std::move(path)) {}
  // Throws std::runtime_error if the folder does not exist.
  static Checkpoint from_directory(const std::string& path);
  // From a state: dicts and lists of tensors, numbers and strings (state.h). Nothing is written or copied until the
  // checkpoint is reported.
  static Checkpoint from_state(Dict state);

  // Empty for a checkpoint that was created from a state and not reported.
  const std::string& path() const { return path_; }

  // A local folder to read from. It may be the checkpoint's own folder, so do not write to it. The processes of this
  // machine share a download, which is deleted with the last Directory.
  class TRIREME_API Directory {
   public:
    const std::string& path() const { return path_; }

   private:
    friend class Checkpoint;
    std::string path_;
    std::shared_ptr<void> held_;  // shared by copies: the last one deletes the download
  };
  Directory as_directory() const;
  // Copies the files and, if a run committed the checkpoint, verifies their checksums. Returns `path`.
  std::string to_directory(const std::string& path) const;

  // The state stored by from_state() or by Python's save_state() and from_dict(). `rank`: whose part to load if several
  // ranks stored one; default: this rank's part, or the only one. Throws if there is no state or a file is damaged.
  Dict load_state(int rank = -1) const;
  // The state passed to from_state(); nullptr otherwise.
  const Dict* state() const { return state_.get(); }

  // {} if none was set.
  Dict get_metadata() const;
  void set_metadata(const Dict& metadata);
  void update_metadata(const Dict& metadata);

  bool operator==(const Checkpoint&) const = default;

 private:
  std::string path_;
  std::shared_ptr<const Dict> state_;  // shared by copies
};

}  // namespace trireme
