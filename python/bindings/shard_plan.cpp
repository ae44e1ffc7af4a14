#include "data/shard_plan.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/config_fields.h"
#include "bindings.h"
#include "fields.h"

namespace trireme::python {
namespace {

DataConfig config_of(const nb::dict& given) {
  return value_or<ConfigError>(base::checked_config<DataConfig>(to_dict(given, "config"), "DataConfig"));
}

nb::object plan(const std::string& name, std::int64_t rows, const nb::dict& config, int max_workers,
                std::optional<std::int64_t> own_seed) {
  const auto made = value_or<ConfigError>(data::plan_shard(name, rows, config_of(config), max_workers, own_seed));
  return to_python(base::to_dict(made));
}

nb::tuple options(const nb::dict& plan, const nb::dict& config, const nb::dict& worker) {
  const auto planned = struct_from<data::ShardPlan>(plan, "ShardPlan");
  const auto checked = config_of(config);
  const auto made = value_or<ConfigError>(
      data::shard_options(planned, checked, struct_from<data::ShardWorker>(worker, "ShardWorker")));
  return nb::make_tuple(to_python(base::to_dict(made)), data::virtual_shards(planned, checked));
}

}  // namespace

void bind_shard_plan(nb::module_& module) {
  module.def(
      "check_datasets",
      [](const std::vector<std::string>& names, const nb::dict& config) {
        value_or<ConfigError>(data::check_datasets(names, config_of(config)));
      },
      nb::arg("names"), nb::arg("config"), "Raises ConfigError for an invalid name of a dataset.");
  module.def("plan_shard", &plan, nb::arg("name"), nb::arg("rows"), nb::arg("config"), nb::arg("max_workers"),
             nb::arg("own_seed").none(),
             nb::sig("def plan_shard(name: str, rows: int, config: dict, max_workers: int, "
                     "own_seed: int | None) -> dict"),
             "How a trainer's dataset is divided among its workers: the fields of ShardPlan (src/data/shard_plan.h).");
  module.def("shard_options", &options, nb::arg("plan"), nb::arg("config"), nb::arg("worker"),
             nb::sig("def shard_options(plan: dict, config: dict, worker: dict) -> tuple[dict, int | None]"),
             "A worker's part: the fields of ShardOptions, and the number of virtual shards; None: chosen by size.");
}

}  // namespace trireme::python
