#include <arrow/c/bridge.h>

#include "aggregates.h"
#include "kernels.h"
#include "plan/relational.h"
#include "status.h"
#include "stream_ops.h"
#include "unified.h"

// Makes the methods of Dataset that need Arrow work in every program that links this library.

namespace trireme::dataset {
namespace {

void unify(std::vector<ArrowSchema>& schemas, ArrowSchema* out) {
  load_kernels();
  std::vector<std::shared_ptr<::arrow::Schema>> imported;
  for (auto& each : schemas) imported.push_back(check(::arrow::ImportSchema(&each)));
  check(::arrow::ExportSchema(*unified(imported), out));
}

constexpr plan::Relational kRelational{filter_op, with_column_op, aggregate, unify, conform_op};
[[maybe_unused]] const bool kRegistered = (plan::register_relational(kRelational), true);

}  // namespace
}  // namespace trireme::dataset
