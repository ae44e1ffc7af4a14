#include <torch/torch.h>
#include <trireme/torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <string>

// One program with many ways to run: tests/python/test_cpp_torch.py names one and looks at what comes of it. What ranks
// must agree on is checked here, where the gradients are.

namespace {

using at::Tensor;
using trireme::Config;
using trireme::Dict;
using trireme::List;

int rank() { return trireme::context().world_rank; }
int ranks() { return trireme::context().world_size; }

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("not so: " + what);
}

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int width = 16)
      : fc1(register_module("fc1", torch::nn::Linear(8, width))),
        fc2(register_module("fc2", torch::nn::Linear(width, 1))) {}
  Tensor forward(const Tensor& x) { return fc2(torch::tanh(fc1(x))); }
  torch::nn::Linear fc1, fc2;
};
TORCH_MODULE(Net);

// With buffers.
struct NormedImpl : torch::nn::Module {
  NormedImpl()
      : fc(register_module("fc", torch::nn::Linear(8, 4))),
        norm(register_module("norm", torch::nn::BatchNorm1d(4))),
        head(register_module("head", torch::nn::Linear(4, 1))) {}
  Tensor forward(const Tensor& x) { return head(norm(fc(x))); }
  torch::nn::Linear fc;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear head;
};
TORCH_MODULE(Normed);

// A rank uses one head or the other, and nobody the last one.
struct HeadsImpl : torch::nn::Module {
  HeadsImpl()
      : body(register_module("body", torch::nn::Linear(8, 4))),
        left(register_module("left", torch::nn::Linear(4, 1))),
        right(register_module("right", torch::nn::Linear(4, 1))),
        nobody(register_module("nobody", torch::nn::Linear(4, 1))) {}
  std::pair<Tensor, std::vector<Tensor>> forward(const Tensor& x, bool to_the_left) {
    const Tensor inner = body(x);
    return {to_the_left ? left(inner) : right(inner), {inner}};
  }
  torch::nn::Linear body, left, right, nobody;
};
TORCH_MODULE(Heads);

// The rows of a step, the same in Python; a rank takes every ranks-th.
std::pair<Tensor, Tensor> rows(int step, int rank, int ranks) {
  const Tensor x = torch::sin(torch::arange(12 * 8).reshape({12, 8}) * 0.37 + step);
  const Tensor y = torch::cos(x.sum(1, true));
  using torch::indexing::Slice;
  return {x.index({Slice(rank, torch::indexing::None, ranks)}), y.index({Slice(rank, torch::indexing::None, ranks)})};
}

std::string bytes_of(const torch::nn::Module& module) {
  std::string bytes;
  for (const auto& [name, value] : trireme::torch::state_of(module)) {
    const auto& tensor = value.as_tensor();
    bytes.append(static_cast<const char*>(tensor.data()), tensor.num_bytes());
  }
  return bytes;
}

void expect_same_on_all(const torch::nn::Module& module, const std::string& when) {
  const std::string mine = bytes_of(module);
  expect(trireme::collective::broadcast_from_rank_zero(mine) == mine, "the module is that of rank 0 " + when);
}

void copy_parameters(const torch::nn::Module& from, torch::nn::Module& to) {
  trireme::torch::load_state(to, trireme::torch::state_of(from));
  to.zero_grad();
}

void expect_close(const Tensor& one, const Tensor& other, const std::string& what) {
  expect(one.defined() && other.defined() && torch::allclose(one, other, 1e-5, 1e-7), what);
}

// What one process with the rows of all ranks would get.
template <typename Module>
void expect_average(const torch::nn::Module& trained, Module reference, int step, double factor = 1) {
  for (int r = 0; r < ranks(); ++r) {
    const auto [x, y] = rows(step, r, ranks());
    (torch::mse_loss(reference->forward(x), y) * factor / ranks()).backward();
  }
  const auto own = trained.named_parameters();
  for (const auto& item : reference->named_parameters()) {
    expect_close(own[item.key()].grad(), item.value().grad(), "the gradient of " + item.key() + " is the average");
  }
}

void gradients_are_averaged() {
  torch::manual_seed(rank());  // rank 0's parameters win
  Net net;
  auto model = trireme::torch::prepare_model(net, {.bucket_bytes = 256, .first_bucket_bytes = 64});
  expect(model.module() == net.ptr() && model->fc1.get() == net->fc1.get(), "the module is the one given");
  expect_same_on_all(*model, "after prepare_model()");
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < 6; ++step) {
    Net reference;
    copy_parameters(*model, *reference);
    optimizer.zero_grad();
    const auto [x, y] = rows(step, rank(), ranks());
    // Any way to call the module will do.
    const Tensor out = step % 3 == 0 ? model(x) : step % 3 == 1 ? model.forward(x) : model->forward(x);
    const Tensor loss = torch::mse_loss(out, y);
    torch::autograd::grad({loss}, model->parameters(), {},
                          /*retain_graph=*/true);  // of this rank, and none of our business
    loss.backward();
    expect_average(*model, reference, step);
    optimizer.step();
    expect_same_on_all(*model, "after step " + std::to_string(step));
  }
  trireme::report({{"ranks", ranks()}});
}
TRIREME_TRAIN_FUNCTION(gradients_are_averaged);

void gradients_accumulate() {
  torch::manual_seed(rank());
  auto model = trireme::torch::prepare_model(std::make_shared<NetImpl>());
  torch::optim::SGD optimizer(model->parameters(), 0.05);
  for (int step = 0; step < 4; ++step) {
    Net reference;
    copy_parameters(*model, *reference);
    optimizer.zero_grad();
    const auto [x, y] = rows(step, rank(), ranks());
    {
      const auto held = model.no_sync();
      torch::mse_loss(model(x), y).backward();
      Net alone;
      copy_parameters(*model, *alone);
      torch::mse_loss(alone->forward(x), y).backward();
      expect(model->fc1->weight.grad().equal(alone->fc1->weight.grad()), "nothing is averaged meanwhile");
    }
    torch::mse_loss(model(x), y).backward();
    expect_average(*model, reference, step, 2);
    optimizer.step();
    expect_same_on_all(*model, "after step " + std::to_string(step));
  }
}
TRIREME_TRAIN_FUNCTION(gradients_accumulate);

void buffers_are_those_of_rank_zero() {
  torch::manual_seed(rank());
  auto model = trireme::torch::prepare_model(Normed());
  torch::optim::Adam optimizer(model->parameters());
  Tensor before = model->norm->running_mean.clone();
  for (int step = 0; step < 3; ++step) {
    const auto [x, y] = rows(step, rank(), ranks());
    optimizer.zero_grad();
    torch::mse_loss(model(x), y).backward();
    optimizer.step();
    expect_same_on_all(*model, "after step " + std::to_string(step));
  }
  expect(!before.equal(model->norm->running_mean), "the running mean has moved");

  torch::manual_seed(rank());
  auto apart = trireme::torch::prepare_model(Normed(), {.broadcast_buffers = false});
  const auto [x, y] = rows(0, rank(), ranks());
  torch::mse_loss(apart(x), y).backward();
  const auto mine = bytes_of(*apart);
  const bool same = trireme::collective::broadcast_from_rank_zero(mine) == mine;
  expect(same == (rank() == 0), "without it every rank has its own");
}
TRIREME_TRAIN_FUNCTION(buffers_are_those_of_rank_zero);

void parameters_may_be_unused() {
  torch::manual_seed(rank());
  auto model = trireme::torch::prepare_model(Heads(), {.find_unused_parameters = true});
  torch::optim::SGD optimizer(model->parameters(), 0.05);
  for (int step = 0; step < 4; ++step) {
    Heads reference;
    copy_parameters(*model, *reference);
    optimizer.zero_grad();
    const auto [x, y] = rows(step, rank(), ranks());
    torch::mse_loss(model.forward(x, (rank() + step) % 2 == 0).first, y).backward();
    for (int r = 0; r < ranks(); ++r) {
      const auto [their_x, their_y] = rows(step, r, ranks());
      (torch::mse_loss(reference->forward(their_x, (r + step) % 2 == 0).first, their_y) / ranks()).backward();
    }
    for (const auto* name : {"body.weight", "left.weight", "right.bias"}) {
      expect_close(model->named_parameters()[name].grad(), reference->named_parameters()[name].grad(), name);
    }
    const Tensor untouched = model->nobody->weight.grad();
    expect(!untouched.defined() || untouched.abs().max().item<float>() == 0, "nobody's head gets no gradient");
    optimizer.step();
    expect_same_on_all(*model, "after step " + std::to_string(step));
  }
}
TRIREME_TRAIN_FUNCTION(parameters_may_be_unused);

// Two losses, each with a backward() of its own, of different parameters.
void a_step_may_have_two_backwards() {
  auto model = trireme::torch::prepare_model(std::make_shared<NormedImpl>());
  for (int step = 0; step < 3; ++step) {
    model->zero_grad();
    const auto [x, y] = rows(step, rank(), ranks());
    const Tensor inner = model->norm(model->fc(x));
    torch::mse_loss(model->head(inner.detach()), y).backward();
    inner.pow(2).mean().backward();
    const Tensor mine = model->fc->weight.grad().clone();
    const std::string bytes(static_cast<const char*>(mine.const_data_ptr()), mine.nbytes());
    expect(trireme::collective::broadcast_from_rank_zero(bytes) == bytes, "the gradient is the same on all ranks");
  }
}
TRIREME_TRAIN_FUNCTION(a_step_may_have_two_backwards);

struct EmptyImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) { return x; }
};

void prepares_what_is_bad(const Config& config) {
  const auto kind = config["kind"].get<std::string>();
  if (kind == "empty") trireme::torch::prepare_model(std::make_shared<EmptyImpl>());
  if (kind == "frozen") {
    Net net;
    for (auto& parameter : net->parameters()) parameter.requires_grad_(false);
    trireme::torch::prepare_model(net);
  }
  if (kind == "twice") {
    Net net;
    const auto model = trireme::torch::prepare_model(net);
    trireme::torch::prepare_model(net);
  }
  if (kind == "shape") trireme::torch::prepare_model(Net(rank() == 1 ? 17 : 16));
  if (kind == "fewer") {
    if (rank() == 1) {
      trireme::torch::prepare_model(torch::nn::Linear(8, 16));
    } else {
      trireme::torch::prepare_model(torch::nn::Sequential(torch::nn::Linear(8, 16)));
    }
  }
  if (kind == "unused") {
    const auto model = trireme::torch::prepare_model(Heads());
    for (int step = 0; step < 2; ++step) model(torch::ones({2, 8}), true).first.sum().backward();
  }
  if (kind == "around") {
    const auto model = trireme::torch::prepare_model(Heads(), {.find_unused_parameters = true});
    model->forward(torch::ones({2, 8}), true).first.sum().backward();
  }
}
TRIREME_TRAIN_FUNCTION(prepares_what_is_bad);

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& kind, std::vector<Tensor> parameters) {
  using namespace torch::optim;
  if (kind == "SGD") return std::make_unique<SGD>(parameters, SGDOptions(0.05).momentum(0.9).nesterov(true));
  if (kind == "Adam") return std::make_unique<Adam>(parameters, AdamOptions(0.01).betas({0.8, 0.99}).amsgrad(true));
  if (kind == "AdamW") return std::make_unique<AdamW>(parameters, AdamWOptions(0.01).weight_decay(0.1));
  if (kind == "RMSprop") return std::make_unique<RMSprop>(parameters, RMSpropOptions(0.01).centered(true));
  if (kind == "Adagrad") return std::make_unique<Adagrad>(parameters, AdagradOptions(0.05).lr_decay(0.01));
  throw std::invalid_argument(kind);
}

// Steps [begin, end), from a checkpoint where one is given; reports the loss over all rows before each step.
void trains(const Config& config) {
  torch::manual_seed(7);
  auto model = trireme::torch::prepare_model(Net(config["width"].get<int>()));
  const auto optimizer = make_optimizer(config["optimizer"].get<std::string>(), model->parameters());
  torch::optim::StepLR scheduler(*optimizer, 3, 0.5);
  int step = 0;
  if (const auto checkpoint = trireme::get_checkpoint()) {
    const Dict extras = trireme::torch::load(*checkpoint, *model, *optimizer);
    step = extras["step"].get<int>();
    trireme::torch::load_state(scheduler, extras["scheduler"].as_dict());
    trireme::torch::set_rng_state(extras["rng"].as_dict());
  }
  List losses, drawn;
  for (; step < config["end"].get<int>(); ++step) {
    const auto [all_x, all_y] = rows(step, 0, 1);
    {
      const torch::NoGradGuard no_grad;
      losses.emplace_back(torch::mse_loss(model(all_x), all_y).item<double>());
    }
    drawn.emplace_back(torch::rand({1}).item<double>());
    const auto [x, y] = rows(step, rank(), ranks());
    optimizer->zero_grad();
    torch::mse_loss(model(x), y).backward();
    optimizer->step();
    scheduler.step();
  }
  expect_same_on_all(*model, "at the end");
  const auto made = trireme::torch::save(
      *model, *optimizer,
      {{"step", step}, {"scheduler", trireme::torch::state_of(scheduler)}, {"rng", trireme::torch::rng_state()}});
  trireme::report({{"losses", losses}, {"drawn", drawn}}, made,
                  {.checkpoint_upload_mode = trireme::CheckpointUploadMode::kAsync});
}
TRIREME_TRAIN_FUNCTION(trains);

struct Numbers : torch::data::datasets::Dataset<Numbers> {
  explicit Numbers(std::int64_t count) : count(count) {}
  torch::data::Example<> get(std::size_t index) override {
    return {torch::tensor(static_cast<std::int64_t>(index)), torch::tensor(0)};
  }
  std::optional<std::size_t> size() const override { return static_cast<std::size_t>(count); }
  std::int64_t count;
};

// Two epochs, left in the middle of the second where "stop" says so; goes on from the checkpoint's position.
void loads_data(const Config& config) {
  auto loader =
      trireme::torch::prepare_data_loader(Numbers(config["size"].get<int>()).map(torch::data::transforms::Stack<>()),
                                          torch::data::DataLoaderOptions(config["batch"].get<std::size_t>())
                                              .workers(config["threads"].get<std::size_t>())
                                              .drop_last(config["drop_last"].get<bool>()),
                                          {.shuffle = config["shuffle"].get<bool>(), .seed = 3});
  if (const auto checkpoint = trireme::get_checkpoint()) loader.load_state(checkpoint->load_state()["data"].as_dict());
  int left = config["stop"].get<int>();
  while (loader.epoch() < 2) {
    const auto epoch = loader.epoch();
    List batches;
    for (auto& batch : loader) {
      List indices;
      for (std::int64_t i = 0; i < batch.data.size(0); ++i)
        indices.emplace_back(batch.data[i].template item<std::int64_t>());
      batches.emplace_back(std::move(indices));
      if (epoch == 1 && --left == 0) break;
    }
    const bool stopped = epoch == 1 && left == 0;
    std::optional<trireme::Checkpoint> made;
    if (stopped && rank() == 0) made = trireme::Checkpoint::from_state({{"data", loader.state()}});
    trireme::report({{"epoch", epoch}, {"batches", batches}, {"num_batches", loader.num_batches()}}, made);
    if (stopped) break;
  }
}
TRIREME_TRAIN_FUNCTION(loads_data);

void leaves_an_epoch() {
  auto loader = trireme::torch::prepare_data_loader(Numbers(64).map(torch::data::transforms::Stack<>()),
                                                    torch::data::DataLoaderOptions(4).workers(2));
  for (int expected = 0; expected < 3; ++expected) {
    int count = 0;
    for (auto& batch : loader) {
      expect(batch.data.size(0) == 4, "whole batches");
      expect(loader.epoch() == expected, "begin() after a break begins the next epoch");
      if (++count == 2) break;
    }
    expect(loader.epoch() == expected, "it is left, and not at its end");
    if (expected < 2) continue;
    expect(loader.state()["epoch"].get<int>() == 2 && loader.state()["samples"].get<int>() == 2 * 4 * ranks(),
           "what was handed out counts");
  }
}
TRIREME_TRAIN_FUNCTION(leaves_an_epoch);

Config config_of(int argc, char** argv) {
  Config config = {{"width", 16}, {"threads", 0}, {"drop_last", false}, {"shuffle", true}, {"stop", -1}};
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

}  // namespace

// torch_ddp_program FUNCTION WORKERS NAME [KEY VALUE]...; "from" is the checkpoint to begin with.
int main(int argc, char** argv) {
  trireme::init(argc, argv);
  const std::string function = argc > 1 ? argv[1] : "";
  if (function == "outside") {
    try {
      trireme::torch::prepare_model(Net());
    } catch (const std::runtime_error& refused) {
      std::cout << "REFUSED " << refused.what() << "\n";
    }
    return 0;
  }
  const Config config = config_of(argc, argv);
  trireme::TrainerOptions options = {
      .config = config, .scaling = {.num_workers = std::atoi(argv[2])}, .run = {.name = argv[3]}};
  if (const auto* from = config.find("from")) options.resume_from_checkpoint = trireme::Checkpoint(from->as_string());
  const auto run = [&](auto train) {
    try {
      const auto result = trireme::DataParallelTrainer(train, options).fit();
      if (result.checkpoint) std::cout << "CHECKPOINT " << result.checkpoint->path() << "\n";
      return 0;
    } catch (const trireme::TrainingFailedError& failed) {
      for (const auto& each : failed.worker_failures()) {
        if (!each.collateral) std::cout << "FAILED rank " << each.rank << ": " << each.message << "\n";
      }
      return 3;
    }
  };
  if (function == "gradients") return run(gradients_are_averaged);
  if (function == "accumulation") return run(gradients_accumulate);
  if (function == "buffers") return run(buffers_are_those_of_rank_zero);
  if (function == "unused") return run(parameters_may_be_unused);
  if (function == "two_backwards") return run(a_step_may_have_two_backwards);
  if (function == "bad") return run(prepares_what_is_bad);
  if (function == "train") return run(trains);
  if (function == "data") return run(loads_data);
  if (function == "leave") return run(leaves_an_epoch);
  std::cerr << "no such function: " << function << "\n";
  return 2;
}
