#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>

#include "base/network.h"
#include "bindings.h"
#include "trireme/boosting_job.h"
#include "trireme/config.h"
#include "value.h"

namespace trireme::python {
namespace {

nb::dict check(const nb::dict& given) {
  Dict dict = to_dict(given, "job");
  BoostingJob job;
  job.library = dict.at("library").as_string();
  job.params = dict.at("params").as_dict();
  job.num_boost_round = dict.at("num_boost_round");
  job.label_column = dict.at("label_column").as_string();
  job.weight_column = dict.at("weight_column").as_string();
  job.group_column = dict.at("group_column").as_string();
  for (const auto& column : dict.at("categorical_columns").as_list())
    job.categorical_columns.push_back(column.as_string());
  job.early_stopping_rounds = dict.at("early_stopping_rounds");
  job.external_memory = dict.at("external_memory").as_bool();
  job.min_workers = static_cast<int>(dict.at("min_workers").as_int());
  job.max_workers = static_cast<int>(dict.at("max_workers").as_int());
  job.cpus_per_worker = dict.at("cpus_per_worker").as_double();
  job.use_gpu = dict.at("use_gpu").as_bool();
  if (const Value* train = dict.find("train")) job.train = train->as_string();
  job.datasets = dict.at("datasets").as_dict();
  const CheckedBoostingJob checked = check_boosting_job(job);
  Dict made{{"params", checked.params},
            {"corrections", List(checked.corrections.begin(), checked.corrections.end())},
            {"features", List(checked.features.begin(), checked.features.end())},
            {"categorical", List(checked.categorical.begin(), checked.categorical.end())},
            {"unrepeatable", List(checked.unrepeatable.begin(), checked.unrepeatable.end())}};
  return to_python(made);
}

nb::list round_params(const nb::dict& params, std::int64_t round) {
  nb::list made;
  for (const Dict& each : lightgbm_round_params(to_dict(params, "params"), round)) made.append(to_python(each));
  return made;
}

}  // namespace

void bind_boosting(nb::module_& module) {
  module.def("check_boosting_job", &check, nb::arg("job"), nb::sig("def check_boosting_job(job: dict) -> dict"),
             "The checked job, from the fields of BoostingJob (include/trireme/boosting_job.h), or ConfigError.");
  module.def("lightgbm_round_params", &round_params, nb::arg("params"), nb::arg("round"),
             nb::sig("def lightgbm_round_params(params: dict, round: int) -> list[dict]"),
             "The changes of LightGBM's parameters before a round, one after another.");
  module.def(
      "lightgbm_continues", [](const nb::dict& params) { return lightgbm_continues(to_dict(params, "params")); },
      nb::arg("params"), nb::sig("def lightgbm_continues(params: dict) -> bool"),
      "Whether LightGBM can continue a model with these parameters.");
  nb::class_<TemporaryFolder>(module, "TemporaryFolder",
                              "A local folder that is removed with this object, also if the process is killed.")
      .def(nb::init<>())
      .def_prop_ro("path", &TemporaryFolder::path);
  nb::class_<base::ReservedPort>(module, "ReservedPort",
                                 "A TCP port that no other worker of this machine gets while this object exists.")
      .def(nb::init<>())
      .def_prop_ro("port", &base::ReservedPort::port);
  nb::class_<base::TcpConnections>(module, "TcpConnections",
                                   "Those that a library opens between the construction and record().")
      .def(nb::init<>())
      .def("record", &base::TcpConnections::record)
      .def("cut", &base::TcpConnections::cut, "Ends all calls on them with an error, in whatever thread they are.");
  module.def("cut_ports", &base::cut_ports, nb::arg("ports"), "Cuts the connections from or to one of these ports.");
}

}  // namespace trireme::python
