#pragma once

#include <torch/torch.h>
#include <trireme/torch/torch.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>

// Shared by the files of torch_program: each has many training functions; tests/python/test_cpp_torch*.py run one and
// check the result.

namespace cases {

using at::Tensor;
using trireme::Config;
using trireme::Dict;
using trireme::List;

inline int rank() { return trireme::context().world_rank; }
inline int ranks() { return trireme::context().world_size; }

inline void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("expectation failed: " + what);
}

template <typename Error>
void expect_thrown(const std::function<void()>& act, const std::string& message) {
  try {
    act();
  } catch (const Error& error) {
    return expect(std::string(error.what()).find(message) != std::string::npos,
                  "\"" + message + "\" in: " + error.what());
  }
  expect(false, "it throws \"" + message + "\"");
}

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int width = 16)
      : fc1(register_module("fc1", torch::nn::Linear(8, width))),
        fc2(register_module("fc2", torch::nn::Linear(width, 1))) {}
  Tensor forward(const Tensor& x) { return fc2(torch::tanh(fc1(x))); }
  torch::nn::Linear fc1, fc2;
};
TORCH_MODULE(Net);

// The rows of a step, the same as in Python; each rank takes every `ranks`-th row.
inline std::pair<Tensor, Tensor> rows(int step, int rank, int ranks) {
  const Tensor x = torch::sin(torch::arange(12 * 8).reshape({12, 8}) * 0.37 + step);
  const Tensor y = torch::cos(x.sum(1, true));
  using torch::indexing::Slice;
  return {x.index({Slice(rank, torch::indexing::None, ranks)}), y.index({Slice(rank, torch::indexing::None, ranks)})};
}

inline std::string bytes_of(const torch::nn::Module& module) {
  std::string bytes;
  for (const auto& [name, value] : trireme::torch::state_of(module)) {
    const auto& tensor = value.as_tensor();
    bytes.append(static_cast<const char*>(tensor.data()), tensor.num_bytes());
  }
  return bytes;
}

inline void expect_same_on_all(const torch::nn::Module& module, const std::string& when) {
  const std::string mine = bytes_of(module);
  expect(trireme::collective::broadcast_from_rank_zero(mine) == mine, "the module is that of rank 0 " + when);
}

using Case = std::function<trireme::Result(const trireme::TrainerOptions&)>;

template <typename Function>
Case train_with(Function function) {
  return [function](const trireme::TrainerOptions& options) {
    return trireme::DataParallelTrainer(function, options).fit();
  };
}

inline Config config_of(int argc, char** argv, Config config) {
  for (int i = 4; i + 1 < argc; i += 2) {
    const std::string value = argv[i + 1];
    char* rest = nullptr;
    const long number = std::strtol(argv[i + 1], &rest, 10);
    if (value == "true" || value == "false") {
      config[argv[i]] = value == "true";
    } else if (*rest == '\0') {
      config[argv[i]] = number;
    } else {
      config[argv[i]] = value;
    }
  }
  return config;
}

// FILE FUNCTION WORKERS NAME [KEY VALUE]...; "from" is the checkpoint to start from, "failures" is max_failures.
inline int run(int argc, char** argv, const Config& defaults, const std::map<std::string, Case>& functions) {
  const auto found = argc > 3 ? functions.find(argv[1]) : functions.end();
  if (found == functions.end()) {
    std::cerr << "unknown function\n";
    return 2;
  }
  const Config config = config_of(argc, argv, defaults);
  trireme::TrainerOptions options = {
      .config = config, .scaling = {.num_workers = std::atoi(argv[2])}, .run = {.name = argv[3]}};
  if (const auto* from = config.find("from")) options.resume_from_checkpoint = trireme::Checkpoint(from->as_string());
  if (const auto* failures = config.find("failures")) {
    options.run.failure_config.max_failures = failures->get<int>();
  }
  try {
    const auto result = found->second(options);
    if (result.checkpoint) std::cout << "CHECKPOINT " << result.checkpoint->path() << "\n";
    return 0;
  } catch (const trireme::TrainingFailedError& failed) {
    for (const auto& each : failed.worker_failures()) {
      if (!each.collateral) std::cout << "FAILED rank " << each.rank << ": " << each.message << "\n";
    }
    return 3;
  }
}

}  // namespace cases

// One per file. Each gets all arguments of the program, because workers are started with them.
namespace cases::cancel {
int start(int argc, char** argv);
}
namespace cases::loaders {
int start(int argc, char** argv);
}
namespace cases::models {
int start(int argc, char** argv);
}
namespace cases::store {
int start(int argc, char** argv);
}
namespace cases::training {
int start(int argc, char** argv);
}
