#include <fmt/format.h>

#include "base/dict_fields.h"
#include "cli/commands.h"

namespace trireme::cli {

base::Result<int> stack(const StackOptions& options) {
  TRIREME_ASSIGN(auto entry, find_active(options.run));
  wire::GetStacks request;
  request.id = 1;
  TRIREME_ASSIGN(auto answer, ask(entry, request), "could not get the stacks of run {} (driver pid {})", entry.name,
                 entry.pid);
  const Dict* told = answer.get_if<Dict>();
  if (!told) return base::error("the reply from run {} has no stacks", entry.name);
  fmt::print("{}", base::text_of(*told, "text"));
  if (std::string path = base::text_of(*told, "path"); !path.empty()) fmt::print("\nwritten to {}\n", path);
  return kDone;
}

}  // namespace trireme::cli
