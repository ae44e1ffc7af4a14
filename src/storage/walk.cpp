#include "storage/walk.h"

#include <algorithm>
#include <cerrno>

#include "storage/disk_error.h"
#include "storage/paths.h"

namespace trireme::storage {
namespace {

class Walker {
 public:
  Walker(Disk& disk, const std::string& top, Walk how, const Veto& veto)
      : disk_(disk), top_(top), how_(how), veto_(veto) {}

  base::Result<void> visit(const std::string& relative, const Status& folder, bool sole) {
    const std::string path = absolute(relative);
    if (veto_) TRIREME_TRY(veto_(path, folder));
    std::vector<std::string> names;
    if (int failure = disk_.list(path, names)) {
      if (failure == ENOENT && how_ == Walk::kAll && !relative.empty()) return {};
      return failed("list", path, failure);
    }
    above_.push_back(folder.id);
    for (const auto& name : names) {
      if (how_ == Walk::kStore && name.starts_with(kOwnPrefix)) continue;
      TRIREME_TRY(meet(relative.empty() ? name : fmt::format("{}/{}", relative, name), sole));
    }
    above_.pop_back();
    return {};
  }

  std::vector<FoundFile> sorted() && {
    std::sort(files_.begin(), files_.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
    return std::move(files_);
  }

 private:
  std::string absolute(const std::string& relative) const { return relative.empty() ? top_ : top_ + "/" + relative; }

  base::Result<void> meet(const std::string& relative, bool sole) {
    const std::string path = absolute(relative);
    Status status;
    if (int failure = disk_.look(path, status)) {
      if (failure == ENOENT && how_ == Walk::kAll) return {};
      if (failure == ENOENT) return removed_meanwhile(path);
      return failed("access", path, failure);
    }
    const bool link = status.kind == Kind::kLink;
    if (link) {
      if (int failure = disk_.look_through(path, status)) {
        if (how_ == Walk::kAll && (failure == ENOENT || failure == ELOOP)) return {};
        if (failure == ENOENT) return base::error("{} is a symbolic link to a missing file; remove the link", path);
        if (failure == ELOOP) return base::error("{} is a symbolic link to itself; remove the link", path);
        return failed("follow the link", path, failure);
      }
    }
    if (status.kind == Kind::kFile) {
      files_.push_back({relative, status.size, sole && !link && status.names == 1});
      return {};
    }
    if (status.kind == Kind::kOther) {
      if (how_ == Walk::kAll) return {};
      return base::error("{} is a socket, pipe or device and cannot be stored; remove it from the folder", path);
    }
    if (link && std::find(above_.begin(), above_.end(), status.id) != above_.end()) {
      if (how_ == Walk::kAll) return {};
      return base::error("{} is a symbolic link to a folder that contains it; remove the link", path);
    }
    return visit(relative, status, sole && !link);
  }

  Disk& disk_;
  const std::string& top_;
  const Walk how_;
  const Veto& veto_;
  std::vector<decltype(Status::id)> above_;  // the ancestors: a link to one of them is a loop
  std::vector<FoundFile> files_;
};

}  // namespace

base::Result<std::vector<FoundFile>> walk(Disk& disk, const std::string& folder, Walk how, const Veto& veto) {
  Status status;
  if (int failure = disk.look_through(folder, status)) return failed("list", folder, failure);
  if (status.kind != Kind::kFolder) return base::error("{} is not a folder", folder);
  Walker walker(disk, folder, how, veto);
  TRIREME_TRY(walker.visit("", status, true));
  return std::move(walker).sorted();
}

}  // namespace trireme::storage
