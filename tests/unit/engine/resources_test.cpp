#include "engine/resources.h"

#include <doctest/doctest.h>

#include "engine/placement.h"

namespace resources_test {

using namespace trireme;
using namespace trireme::engine;

namespace {

NodeInfo node(Resources total, bool declared = true, std::vector<Gpu> gpus = {}) {
  return {.id = "local",
          .host = "here",
          .total = total,
          .available = total,
          .gpus = std::move(gpus),
          .cpus_declared = declared};
}

GangRequest gang(int workers, Resources bundle, Resources trainer = {{"CPU", 1}}) {
  GangRequest request;
  request.run_name = "run";
  request.bundles.assign(static_cast<std::size_t>(workers), bundle);
  request.trainer = std::move(trainer);
  return request;
}

std::string refusal(const GangRequest& request, const std::vector<NodeInfo>& nodes) {
  const auto checked = check_capacity(request, nodes);
  REQUIRE_FALSE(checked.ok());
  return checked.error().message();
}

bool has(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE(text);
  return found;
}

}  // namespace

TEST_CASE("sums of fractions fit within a tolerance") {
  Resources left{{"GPU", 1.0}};
  for (int i = 0; i < 3; ++i) {
    const Resources third{{"GPU", 1.0 / 3.0}};
    CHECK(fits(third, left));
    subtract(left, third);
  }
  CHECK(left["GPU"] == 0.0);
  CHECK_FALSE(fits({{"GPU", 0.01}}, left));
  CHECK_FALSE(fits({{"unknown", 1.0}}, {{"CPU", 8.0}}));
  Resources sum{{"CPU", 1.0}};
  add(sum, {{"CPU", 0.5}, {"x", 2.0}});
  CHECK(sum == Resources{{"CPU", 1.5}, {"x", 2.0}});
  CHECK(to_text({{"CPU", 2.0}, {"GPU", 0.5}}) == R"({"CPU": 2, "GPU": 0.5})");
}

TEST_CASE("the resources that a ScalingConfig requests") {
  ScalingConfig config;
  CHECK(worker_bundle(config) == Resources{{"CPU", 1.0}});
  CHECK(trainer_bundle(config) == Resources{{"CPU", 1.0}});
  config.use_gpu = true;
  CHECK(worker_bundle(config) == Resources{{"CPU", 1.0}, {"GPU", 1.0}});
  config.resources_per_worker = Resources{{"CPU", 4.0}, {"GPU", 0.0}, {"x", 0.0}};
  CHECK(worker_bundle(config) == Resources{{"CPU", 4.0}, {"GPU", 1.0}});
  config.resources_per_worker = Resources{{"GPU", 0.5}};
  CHECK(worker_bundle(config) == Resources{{"GPU", 0.5}});
  config.trainer_resources = Resources{{"CPU", 0.0}};
  CHECK(trainer_bundle(config).empty());
}

TEST_CASE("8 declared CPUs refuse 4 workers x 2 with the arithmetic and the options") {
  const auto text = refusal(gang(4, {{"CPU", 2}}), {node({{"CPU", 8}})});
  CHECK(has(text, "CPU: 9 needed (4 x 2 + 1 for the trainer), 8 available"));
  CHECK(has(text, "lower num_workers or resources_per_worker"));
  CHECK(has(text, R"(trainer_resources = {"CPU": 0})"));
  CHECK(has(text, "in init(): num_cpus = 9, or in the environment: TRIREME_NUM_CPUS=9"));
  CHECK(has(text, "add nodes"));
  CHECK(check_capacity(gang(4, {{"CPU", 2}}, {}), {node({{"CPU", 8}})}).ok());
  const auto without_trainer = refusal(gang(5, {{"CPU", 2}}, {}), {node({{"CPU", 8}})});
  CHECK(has(without_trainer, "CPU: 10 needed (5 x 2), 8 available"));
  CHECK(without_trainer.find("trainer_resources") == std::string::npos);
}

TEST_CASE("undeclared CPUs are time-shared: never refused, but warned about") {
  const auto shared = node({{"CPU", 2}}, false);
  CHECK(check_capacity(gang(64, {{"CPU", 2}}), {shared}).ok());
  const auto warning = oversubscription_warning(gang(4, {{"CPU", 1}}), {shared});
  REQUIRE(warning);
  CHECK(has(*warning, "4 CPU requested by 4 workers, but this machine has 2"));
  CHECK_FALSE(oversubscription_warning(gang(2, {{"CPU", 1}}), {shared}));
  CHECK_FALSE(oversubscription_warning(gang(4, {{"CPU", 1}}), {node({{"CPU", 2}}, true)}));
}

TEST_CASE("GPUs are refused at once if there are none or too few") {
  const auto none = refusal(gang(2, {{"CPU", 1}, {"GPU", 1}}), {node({{"CPU", 2}}, false)});
  CHECK(has(none, "use_gpu needs 1 GPU per worker, but this machine has none"));
  CHECK(has(none, "remove use_gpu"));
  CHECK(has(none, "in init(): num_gpus = 2, or in the environment: TRIREME_NUM_GPUS=2"));
  const auto two = node({{"CPU", 8}, {"GPU", 2}}, true, {{"0", "", "NVIDIA A100"}, {"1", "", "NVIDIA A100"}});
  CHECK(has(refusal(gang(4, {{"GPU", 1}}), {two}), "GPU: 4 needed (4 x 1), 2 available"));
  CHECK(has(refusal(gang(1, {{"GPU", 1.5}}), {two}), R"(resources_per_worker = {"GPU": 1.5})"));
  CHECK(has(refusal(gang(1, {}, {{"GPU", 1}}), {node({{"CPU", 2}})}), "trainer_resources requests 1 GPU"));
  // 1.8 of 2, but no device has room for a second 0.6.
  CHECK(has(refusal(gang(3, {{"GPU", 0.6}}), {two}), "although the totals are sufficient"));
  auto typed = gang(1, {{"GPU", 1}});
  typed.accelerator_type = "H100";
  CHECK(has(refusal(typed, {two}), "GPUs here: NVIDIA A100"));
  typed.accelerator_type = "a100";
  CHECK(check_capacity(typed, {two}).ok());
}

TEST_CASE("custom resources are a hard limit, and the error for an unknown one lists the known ones") {
  const auto machine = node({{"CPU", 8}, {"license", 2}});
  const auto unknown = refusal(gang(1, {{"licence", 1}}), {machine});
  CHECK(has(unknown, "\"licence\""));
  CHECK(has(unknown, "did you mean 'license'"));
  CHECK(has(unknown, "custom resources here: license"));
  CHECK(has(unknown, R"(init(): resources = {"licence": 1})"));
  CHECK(has(refusal(gang(3, {{"license", 1}}), {machine}), "license: 3 needed (3 x 1), 2 available"));
  CHECK(has(refusal(gang(1, {{"CPU", 9}, {"license", 3}}), {machine}),
            R"(init(): num_cpus = 10, resources = {"license": 3})"));
}

TEST_CASE("errors of strict strategies explain their requirements") {
  auto request = gang(2, {{"CPU", 1}});
  request.strategy = Strategy::kStrictSpread;
  CHECK(has(refusal(request, {node({{"CPU", 8}})}), "STRICT_SPREAD puts each worker on a separate node: 2 workers"));
  request = gang(4, {{"CPU", 4}}, {});
  request.strategy = Strategy::kStrictPack;
  CHECK(has(refusal(request, {node({{"CPU", 8}}), node({{"CPU", 8}})}), "STRICT_PACK puts all workers on one node"));
}

TEST_CASE("names of strategies and exit statuses") {
  CHECK(*parse_strategy("STRICT_PACK") == Strategy::kStrictPack);
  CHECK(std::string(to_string(Strategy::kSpread)) == "SPREAD");
  CHECK_FALSE(parse_strategy("strict_pack").ok());
  CHECK(to_string(ExitStatus{ExitStatus::Kind::kCode, 3}) == "exit code 3");
  CHECK(to_string(ExitStatus{ExitStatus::Kind::kSignal, 9}) == "signal SIGKILL (9)");
  CHECK(to_string(ExitStatus{ExitStatus::Kind::kSignal, 40}) == "signal 40");
  CHECK(to_string(ExitStatus{}) == "an unknown cause");
}

}  // namespace resources_test
