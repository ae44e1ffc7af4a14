#include "checkpoint/mark.h"

#include <algorithm>
#include <string_view>

#include "base/json.h"
#include "storage/paths.h"
#include "trireme/value.h"

namespace trireme::checkpoint {
namespace {

std::string mark_in(const std::string& folder) { return folder + "/" + kUploadingName; }

}  // namespace

base::Result<std::optional<Origin>> read_mark(storage::Files& files, const std::string& folder) {
  TRIREME_ASSIGN(const bool there, files.exists(mark_in(folder)));
  if (!there) return std::optional<Origin>();
  TRIREME_ASSIGN(const auto text, files.read(mark_in(folder)));
  auto mark = base::parse_json_dict(text);
  if (!mark) return std::optional<Origin>();
  const Value* attempt = mark->find("attempt");
  const Value* index = mark->find("index");
  if (!attempt || !index || !attempt->get_if<std::int64_t>() || !index->get_if<std::int64_t>()) {
    return std::optional<Origin>();
  }
  return std::optional<Origin>({attempt->get<int>(), index->as_int()});
}

base::Result<void> write_mark(storage::Files& files, const std::string& folder, const std::optional<Origin>& origin) {
  Dict mark;
  if (origin) mark = Dict{{"attempt", origin->attempt}, {"index", origin->index}};
  return files.write_atomically(mark_in(folder), base::to_json(mark) + "\n");
}

base::Result<Owner> owner_of(storage::Files& files, const std::string& folder) {
  TRIREME_ASSIGN(const bool marked, files.exists(mark_in(folder)));
  if (marked) return Owner::kOurs;
  TRIREME_ASSIGN(const auto present, files.list_files(folder));
  if (present.empty()) return Owner::kNobody;
  const bool ours = std::all_of(present.begin(), present.end(), [](const auto& file) {
    return std::string_view(file.path).substr(file.path.rfind('/') + 1).starts_with(storage::kOwnPrefix);
  });
  return ours ? Owner::kOurs : Owner::kUser;
}

}  // namespace trireme::checkpoint
