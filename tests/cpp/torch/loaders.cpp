#include <csignal>

#include "cases.h"

// Loaders and their position.

namespace cases::loaders {
namespace {

struct Numbers : torch::data::datasets::Dataset<Numbers> {
  explicit Numbers(std::int64_t count) : count(count) {}
  torch::data::Example<> get(std::size_t index) override {
    return {torch::tensor(static_cast<std::int64_t>(index)), torch::tensor(0)};
  }
  std::optional<std::size_t> size() const override { return static_cast<std::size_t>(count); }
  std::int64_t count;
};

auto loader_of(const Config& config) {
  const int more = config["uneven"].get<bool>() ? rank() : 0;
  return trireme::torch::prepare_data_loader(
      Numbers(config["size"].get<int>() + more).map(torch::data::transforms::Stack<>()),
      torch::data::DataLoaderOptions(config["batch"].get<std::size_t>())
          .workers(config["threads"].get<std::size_t>())
          .drop_last(config["drop_last"].get<bool>()),
      {.shuffle = config["shuffle"].get<bool>(),
       .seed = 3,
       .prefetch = config["prefetch"].get<bool>(),
       .resume = config["resume"].get<bool>()});
}

List indices_in(const torch::data::Example<>& batch) {
  List indices;
  for (std::int64_t i = 0; i < batch.data.size(0); ++i) indices.emplace_back(batch.data[i].item<std::int64_t>());
  return indices;
}

// Two epochs; leaves the second in the middle if "stop" is set. Resumes from the position in the checkpoint.
void loads_data(const Config& config) {
  auto loader = loader_of(config);
  if (const auto checkpoint = trireme::get_checkpoint()) {
    // Manually; otherwise it resumes automatically.
    if (const Dict state = checkpoint->load_state(); state.contains("data")) loader.load_state(state["data"].as_dict());
  }
  const int stop = config["stop"].get<int>();
  while (loader.epoch() < 2) {
    const auto epoch = loader.epoch();
    List batches;
    const auto report = [&](const std::optional<trireme::Checkpoint>& made) {
      trireme::report({{"epoch", epoch}, {"batches", batches}, {"num_batches", loader.num_batches()}}, made);
    };
    for (auto& batch : loader) {
      batches.emplace_back(indices_in(batch));
      if (epoch != 1 || static_cast<int>(batches.size()) != stop) continue;
      const Dict state = config["by_hand"].get<bool>() ? Dict{{"data", loader.state()}} : Dict{{"epoch", epoch}};
      return report(trireme::Checkpoint::from_state(state));
    }
    report({});
  }
}
TRIREME_TRAIN_FUNCTION(loads_data);

// A checkpoint with every batch, and a worker that dies during the second epoch.
void restarts(const Config& config) {
  auto made = loader_of(config);
  auto loader = std::move(made);  // a loader may be moved
  const int attempt = trireme::context().attempt;
  while (loader.epoch() < 2) {
    std::int64_t count = 0;
    for (auto& batch : loader) {
      if (attempt == 0 && rank() == 1 && loader.epoch() == 1 && count++ == config["kill"].get<int>()) {
        std::raise(SIGKILL);
      }
      std::optional<trireme::Checkpoint> checkpoint;
      if (rank() == 0) checkpoint = trireme::Checkpoint::from_state({{"count", count}});
      trireme::report({{"attempt", attempt}, {"place", loader.state()}, {"batch", indices_in(batch)}}, checkpoint);
      trireme::collective::barrier();  // so that no rank is ahead of the stored position
    }
  }
}
TRIREME_TRAIN_FUNCTION(restarts);

// An epoch that was left early has also ended for a run that resumes from the checkpoint.
void leaves_and_reports(const Config& config) {
  auto loader = loader_of(config);
  if (trireme::context().attempt == 1) {
    expect(loader.epoch() == 1 && loader.state()["samples"].get<int>() == 0, "the next epoch follows");
    return;
  }
  for ([[maybe_unused]] auto& batch : loader) break;
  expect(loader.epoch() == 0 && loader.state()["samples"].get<int>() > 0,
         "state() is the position at which it was left");
  trireme::report({}, trireme::Checkpoint::from_state({}));
  trireme::collective::barrier();
  if (rank() == 1) std::raise(SIGKILL);
  trireme::collective::barrier();
}
TRIREME_TRAIN_FUNCTION(leaves_and_reports);

void leaves_an_epoch(const Config& config) {
  auto loader = trireme::torch::prepare_data_loader(Numbers(64).map(torch::data::transforms::Stack<>()),
                                                    torch::data::DataLoaderOptions(4).workers(2),
                                                    {.prefetch = config["prefetch"].get<bool>()});
  for (int expected = 0; expected < 3; ++expected) {
    int count = 0;
    for (auto& batch : loader) {
      expect(batch.data.size(0) == 4, "full batches");
      expect(loader.epoch() == expected, "begin() after a break begins the next epoch");
      if (++count == 2) break;
    }
    expect(loader.epoch() == expected, "it was left before its end");
    if (expected < 2) continue;
    expect(loader.state()["epoch"].get<int>() == 2 && loader.state()["samples"].get<int>() == 2 * 4 * ranks(),
           "returned batches count");
  }
}
TRIREME_TRAIN_FUNCTION(leaves_an_epoch);

// On the CPU nothing is copied; the meta device takes copies, without data.
void finds_tensors() {
  using torch::data::Example;
  trireme::torch::detail::Transfer transfer(c10::Device(c10::kMeta), /*ahead=*/false);
  const Tensor one = torch::ones({2});
  std::tuple<Example<>, std::vector<Example<Tensor, torch::data::example::NoTarget>>, std::map<std::string, Tensor>,
             Example<std::vector<Tensor>, std::pair<Tensor, int>>>
      batch = {{one, one}, {{one}}, {{"key", one}}, {{one}, {one, 3}}};
  transfer.begin(batch);
  transfer.end(batch);
  int found = 0;
  trireme::torch::detail::each_tensor(batch, [&](const Tensor& tensor) { found += tensor.is_meta() ? 1 : 100; });
  expect(found == 6, "all tensors are moved, and not " + std::to_string(found));
}
TRIREME_TRAIN_FUNCTION(finds_tensors);

// Columns of a dataset as tensors of other types, on another device.
void asks_for_types() {
  const auto rows = trireme::data::range(10).map([](const trireme::Dict& row) -> trireme::Dict {
    const std::int64_t id = row["id"].as_int();
    return {{"id", id}, {"x", static_cast<double>(id) / 2}, {"flag", id > 4}};
  });
  int batches = 0;
  for (auto& batch : trireme::torch::iter_batches(rows, {.batch_size = 4}, {.dtypes = {{"x", torch::kFloat}}})) {
    expect(batch["id"].scalar_type() == torch::kLong && batch["flag"].scalar_type() == torch::kBool, "as they are");
    expect(batch["x"].scalar_type() == torch::kFloat, "as requested");
    expect(batch["x"][1].item<float>() == static_cast<float>(batches * 4 + 1) / 2, "the same numbers");
    ++batches;
  }
  expect(batches == 3, "all batches");
  const trireme::torch::TorchBatchesOptions half{.dtype = torch::kHalf, .device = c10::Device(c10::kMeta)};
  for (auto& batch : trireme::torch::iter_batches(rows, {}, half)) {
    expect(batch["id"].scalar_type() == torch::kHalf && batch["id"].is_meta(), "all of them, on that device");
  }
  try {
    for (auto& batch : trireme::torch::iter_batches(rows, {}, {.dtypes = {{"y", torch::kFloat}}})) (void)batch;
    expect(false, "a missing column is refused");
  } catch (const trireme::ValueError& error) {
    expect(std::string(error.what()) == "dtypes: no column named 'y'; the columns are id, x, flag", error.what());
  }
}
TRIREME_TRAIN_FUNCTION(asks_for_types);

}  // namespace

int start(int argc, char** argv) {
  trireme::init(argc, argv);
  const Config defaults = {{"threads", 0},      {"drop_last", false}, {"shuffle", true}, {"stop", -1},     {"kill", -1},
                           {"prefetch", false}, {"resume", true},     {"uneven", false}, {"by_hand", true}};
  return run(argc - 1, argv + 1, defaults,
             {{"data", train_with(loads_data)},
              {"restart", train_with(restarts)},
              {"leave", train_with(leaves_an_epoch)},
              {"leave_and_report", train_with(leaves_and_reports)},
              {"tensors", train_with(finds_tensors)},
              {"types", train_with(asks_for_types)}});
}

}  // namespace cases::loaders
