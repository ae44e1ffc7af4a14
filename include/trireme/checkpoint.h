#pragma once

#include <memory>
#include <string>

#include "trireme/export.h"
#include "trireme/value.h"

namespace trireme {

// A folder with what is needed to go on, and JSON metadata beside it. The folder may lie in a storage elsewhere,
// written as a URI ("s3://bucket/run/checkpoint_000003"); see filesystem.h.
class TRIREME_API Checkpoint {
 public:
  explicit Checkpoint(std::string path) : path_(std::move(path)) {}
  // Throws std::runtime_error where there is no such folder.
  static Checkpoint from_directory(const std::string& path);
  // Made of a state: dicts and lists of tensors, numbers and strings (state.h). Nothing is written or copied before it
  // is reported.
  static Checkpoint from_state(Dict state);

  // Empty for one that was made of a state and not reported.
  const std::string& path() const { return path_; }

  // A local folder to read from. It may be the checkpoint's own, so nothing may be written there; a download is shared
  // by the processes of this machine and goes with the last of them.
  class TRIREME_API Directory {
   public:
    const std::string& path() const { return path_; }

   private:
    friend class Checkpoint;
    std::string path_;
    std::shared_ptr<void> held_;  // shared by copies: the download stays until the last is gone
  };
  Directory as_directory() const;
  // Copies the files, compares their checksums where the checkpoint was committed by a run; returns `path`.
  std::string to_directory(const std::string& path) const;

  // What from_state() or Python's save_state() and from_dict() stored. `rank`: whose part, where several ranks stored
  // one; the own one, or the only one, when not given. Throws where there is none or a file is damaged.
  Dict load_state(int rank = -1) const;
  // The state of one that was made by from_state(); nullptr otherwise.
  const Dict* state() const { return state_.get(); }

  // {} where nothing was set.
  Dict get_metadata() const;
  void set_metadata(const Dict& metadata);
  void update_metadata(const Dict& metadata);

  bool operator==(const Checkpoint&) const = default;

 private:
  std::string path_;
  std::shared_ptr<const Dict> state_;  // shared by copies
};

}  // namespace trireme
