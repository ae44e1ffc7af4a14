#include "trireme/state.h"

#include <filesystem>

#include "api/train_session.h"
#include "checkpoint/sharded_tensors.h"
#include "checkpoint/state_file.h"

namespace trireme {

using api::value_or_throw;

void save_state(const std::string& folder, const Dict& state) { value_or_throw(checkpoint::save_state(folder, state)); }

Dict load_state(const std::string& path, const LoadStateOptions& options) {
  const checkpoint::LoadOptions how{.map = options.map};
  std::error_code ignored;
  const bool is_file = std::filesystem::is_regular_file(path, ignored);
  return value_or_throw(is_file ? checkpoint::load_safetensors(path, how) : checkpoint::load_whole_state(path, how));
}

}  // namespace trireme
