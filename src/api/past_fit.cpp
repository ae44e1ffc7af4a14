#include "api/past_fit.h"

#include "base/check.h"
#include "control/failure_policy.h"
#include "trireme/config.h"

namespace trireme::api {
namespace {

WorkerFailure decode_failure(const Dict& dict) {
  WorkerFailure failure;
  failure.rank = dict["rank"].get<int>();
  failure.pid = dict["pid"].get<int>();
  failure.host = dict["host"].as_string();
  failure.cause = dict["cause"].as_string();
  failure.error_type = dict["error_type"].as_string();
  failure.message = dict["message"].as_string();
  failure.traceback = dict["traceback"].as_string();
  for (const auto& line : dict["log_tail"].as_list()) failure.log_tail.push_back(line.as_string());
  failure.collateral = dict["collateral"].as_bool();
  return failure;
}

Dict encode_result(const Result& result) {
  Dict dict{{"path", result.path}, {"seconds", result.seconds}, {"attempts", result.attempts}};
  dict["reports"] = result.reports;
  dict["return_value"] = result.return_value;
  if (result.metrics) dict["metrics"] = *result.metrics;
  if (result.checkpoint) dict["checkpoint"] = result.checkpoint->path();
  List best;
  for (const auto& [checkpoint, metrics] : result.best_checkpoints) {
    best.push_back(Dict{{"path", checkpoint.path()}, {"metrics", metrics}});
  }
  dict["best_checkpoints"] = std::move(best);
  return dict;
}

Result decode_result(const Dict& dict) {
  Result result;
  result.path = dict["path"].as_string();
  result.seconds = dict["seconds"].as_double();
  result.attempts = dict["attempts"].get<int>();
  result.reports = dict["reports"].as_int();
  result.return_value = dict["return_value"];
  if (const Value* metrics = dict.find("metrics")) result.metrics = metrics->as_dict();
  if (const Value* checkpoint = dict.find("checkpoint")) result.checkpoint = Checkpoint(checkpoint->as_string());
  for (const auto& each : dict["best_checkpoints"].as_list()) {
    result.best_checkpoints.emplace_back(Checkpoint(each["path"].as_string()), each["metrics"].as_dict());
  }
  return result;
}

}  // namespace

Dict PastFit::encode() const {
  Dict dict{{"end", static_cast<int>(end)}, {"what", what}, {"result", encode_result(result)}};
  List failed;
  for (const auto& failure : failures) failed.push_back(control::to_dict(failure));
  dict["failures"] = std::move(failed);
  return dict;
}

PastFit PastFit::decode(const Dict& dict) {
  PastFit past;
  past.end = static_cast<End>(dict["end"].get<int>());
  past.what = dict["what"].as_string();
  past.result = decode_result(dict["result"].as_dict());
  for (const auto& failure : dict["failures"].as_list()) past.failures.push_back(decode_failure(failure.as_dict()));
  return past;
}

Result PastFit::repeat() const {
  switch (end) {
    case End::kReturned: return result;
    case End::kFailed: throw TrainingFailedError(what, failures);
    case End::kRefused: throw ConfigError(what);
    case End::kThrew: throw std::runtime_error(what);
  }
  throw base::BrokenInvariant(fmt::format("a fit() with unknown end {}", static_cast<int>(end)));
}

}  // namespace trireme::api
