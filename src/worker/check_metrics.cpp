#include "worker/check_metrics.h"

#include <fmt/format.h>

namespace trireme::worker {

// Tensors must be stored in a checkpoint.
base::Result<void> check_metric(const Value& value, const std::string& where) {
  if (const Tensor* tensor = value.get_if<Tensor>()) {
    return base::error("{} is a tensor, {}: report numbers, and put tensors into a checkpoint", where,
                       tensor->describe());
  }
  if (const Dict* dict = value.get_if<Dict>()) return check_metrics(*dict, where);
  if (const List* list = value.get_if<List>()) {
    for (std::size_t i = 0; i < list->size(); ++i)
      TRIREME_TRY(check_metric((*list)[i], fmt::format("{}[{}]", where, i)));
  }
  return {};
}

base::Result<void> check_metrics(const Dict& metrics, const std::string& where) {
  for (const auto& [key, value] : metrics) {
    // Most metrics are numbers: skip the text for those.
    if (!value.is_number()) TRIREME_TRY(check_metric(value, fmt::format("{}['{}']", where, key)));
  }
  return {};
}

}  // namespace trireme::worker
