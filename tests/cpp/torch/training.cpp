#include <ATen/autocast_mode.h>

#include <limits>

#include "cases.h"

// Trainings that tests/python/test_cpp_torch.py compares with Python: optimizers, schedulers, precision, clipping.

namespace cases::training {
namespace {

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& kind, std::vector<Tensor> parameters) {
  using namespace torch::optim;
  if (kind == "SGD") return std::make_unique<SGD>(parameters, SGDOptions(0.05).momentum(0.9).nesterov(true));
  if (kind == "Adam") return std::make_unique<Adam>(parameters, AdamOptions(0.01).betas({0.8, 0.99}).amsgrad(true));
  if (kind == "AdamW") return std::make_unique<AdamW>(parameters, AdamWOptions(0.01).weight_decay(0.1));
  if (kind == "RMSprop") return std::make_unique<RMSprop>(parameters, RMSpropOptions(0.01).centered(true));
  if (kind == "Adagrad") return std::make_unique<Adagrad>(parameters, AdagradOptions(0.05).lr_decay(0.01));
  if (kind == "LBFGS") return std::make_unique<LBFGS>(parameters, LBFGSOptions(0.2).max_iter(3).history_size(4));
  if (kind == "LBFGS search") {
    return std::make_unique<LBFGS>(parameters,
                                   LBFGSOptions(0.5).max_iter(2).max_eval(30).line_search_fn("strong_wolfe"));
  }
  throw std::invalid_argument(kind);
}

// Either kind: libtorch has no class for both.
class Scheduler {
 public:
  Scheduler(const std::string& kind, torch::optim::Optimizer& optimizer) {
    using Plateau = torch::optim::ReduceLROnPlateauScheduler;
    if (kind == "plateau") plateau_.emplace(optimizer, Plateau::min, 0.3F, 1, 0.2, Plateau::rel, 1);
    if (kind == "step") steps_.emplace(optimizer, 3, 0.5);
  }
  void step(double loss) {
    if (plateau_) plateau_->step(static_cast<float>(loss));
    if (steps_) steps_->step();
  }
  Dict state() const {
    return plateau_ ? trireme::torch::state_of(*plateau_) : steps_ ? trireme::torch::state_of(*steps_) : Dict();
  }
  void load(const Dict& state) {
    if (plateau_) trireme::torch::load_state(*plateau_, state);
    if (steps_) trireme::torch::load_state(*steps_, state);
  }

 private:
  std::optional<torch::optim::ReduceLROnPlateauScheduler> plateau_;
  std::optional<torch::optim::StepLR> steps_;
};

at::ScalarType type_of(const std::string& name) {
  return name == "bfloat16" ? at::kBFloat16 : name == "half" ? at::kHalf : at::kFloat;
}

// Steps [begin, end), from a checkpoint if there is one; reports the loss over all rows before each step.
void trains(const Config& config) {
  torch::manual_seed(7);
  auto model = trireme::torch::prepare_model(Net(config["width"].get<int>()));
  const auto optimizer = make_optimizer(config["optimizer"].get<std::string>(), model->parameters());
  Scheduler scheduler(config["scheduler"].get<std::string>(), *optimizer);
  const auto type = type_of(config["precision"].get<std::string>());
  trireme::torch::GradScaler scaler({.enabled = type == at::kHalf, .init_scale = 1 << 20, .growth_interval = 3});
  int step = 0;
  if (const auto checkpoint = trireme::get_checkpoint()) {
    const Dict extras = trireme::torch::load(*checkpoint, *model, *optimizer);
    step = extras["step"].get<int>();
    scheduler.load(extras["scheduler"].as_dict());
    scaler.load_state(extras["scaler"].as_dict());
    trireme::torch::set_rng_state(extras["rng"].as_dict());
  }

  List losses, drawn, norms, scales, rates;
  for (; step < config["end"].get<int>(); ++step) {
    const auto [all_x, all_y] = rows(step, 0, 1);
    const auto [x, y] = rows(step, rank(), ranks());
    const auto loss_of = [&](const Tensor& in, const Tensor& wanted) {
      const trireme::torch::Autocast narrow(type);
      return torch::mse_loss(model(in), wanted);
    };
    // Averaged over all ranks: LBFGS uses it, and must see the same value on every rank.
    const auto whole_loss = [&] {
      const torch::NoGradGuard no_grad;
      return loss_of(all_x, all_y);
    };
    losses.emplace_back(whole_loss().item<double>());
    drawn.emplace_back(torch::rand({1}).item<double>());
    const auto compute_gradients = [&] {
      optimizer->zero_grad();
      scaler.scale(loss_of(x, y)).backward();
    };
    if (config["optimizer"].get<std::string>().starts_with("LBFGS")) {
      optimizer->step([&] {
        compute_gradients();
        return whole_loss();
      });
    } else {
      compute_gradients();
      scaler.unscale_(*optimizer);
      if (config["clip"].get<bool>()) {
        norms.emplace_back(torch::nn::utils::clip_grad_norm_(model->parameters(), 0.05));
      }
      scaler.step(*optimizer);
      scaler.update();
    }
    scheduler.step(losses.back().as_double());
    scales.emplace_back(scaler.current_scale());
    rates.emplace_back(optimizer->param_groups()[0].options().get_lr());
  }
  expect_same_on_all(*model, "at the end");
  const auto made = trireme::torch::save(*model, *optimizer,
                                         {{"step", step},
                                          {"scheduler", scheduler.state()},
                                          {"scaler", scaler.state()},
                                          {"rng", trireme::torch::rng_state()}});
  trireme::report({{"losses", losses}, {"drawn", drawn}, {"norms", norms}, {"scales", scales}, {"rates", rates}}, made,
                  {.checkpoint_upload_mode = trireme::CheckpointUploadMode::kAsync});
}
TRIREME_TRAIN_FUNCTION(trains);

void casts() {
  using trireme::torch::Autocast;
  auto model = trireme::torch::prepare_model(Net());
  const Tensor x = torch::ones({4, 8});
  const auto type = [&] { return model(x).scalar_type(); };
  const auto untouched = [&](const std::string& when) {
    expect(type() == at::kFloat && !at::autocast::is_autocast_enabled(at::kCPU), "float32 " + when);
  };
  untouched("before");
  {
    const Autocast narrow;
    expect(type() == at::kBFloat16, "bfloat16 inside");
    expect(model->fc1->weight.scalar_type() == at::kFloat, "parameters stay");
    {
      const Autocast half(at::kHalf);
      expect(type() == at::kHalf, "float16 in the inner one");
      const Autocast full(at::kFloat);
      expect(type() == at::kFloat, "full precision in the innermost one");
    }
    expect(type() == at::kBFloat16, "the outer one is restored");
    expect_thrown<std::invalid_argument>([] { const Autocast wrong(at::kLong); }, "the type is Long");
    expect(type() == at::kBFloat16, "a refused type changes nothing");
    model(x).sum().backward();
    expect(model->fc1->weight.grad().scalar_type() == at::kFloat, "so do gradients");
  }
  untouched("after");
  expect_thrown<std::logic_error>(
      [] {
        const Autocast narrow(at::kBFloat16, at::kCPU);
        throw std::logic_error("on the way");
      },
      "on the way");
  untouched("after an exception");

  // Cached copies of parameters are cleared with the outermost guard.
  Tensor before, after;
  {
    const Autocast narrow;
    before = model(x);
  }
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) parameter.mul_(2);
  }
  {
    const Autocast narrow;
    after = model(x);
  }
  expect(!before.equal(after), "the next forward pass uses the new parameters");
}
TRIREME_TRAIN_FUNCTION(casts);

// An overflow on one rank is an overflow on all, because gradients are averaged.
void scales() {
  auto model = trireme::torch::prepare_model(Net());
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  trireme::torch::GradScaler scaler({.init_scale = 8, .growth_interval = 2});
  const auto gradients = [&](double factor) {
    optimizer.zero_grad();
    const auto [x, y] = rows(0, rank(), ranks());
    scaler.scale(torch::mse_loss(model(x), y) * factor).backward();
  };
  const auto step = [&] {
    const std::string before = bytes_of(*model);
    const bool made = scaler.step(optimizer);
    expect(made == (bytes_of(*model) != before), "step() returns whether it took the step");
    scaler.update();
    return made;
  };
  gradients(rank() == 1 ? std::numeric_limits<double>::infinity() : 1);
  expect(!step() && scaler.current_scale() == 4, "an infinite gradient on rank 1 is infinite on every rank");
  gradients(1);
  Net alone;
  trireme::torch::load_state(*alone, trireme::torch::state_of(*model));
  for (int r = 0; r < ranks(); ++r) {
    const auto [x, y] = rows(0, r, ranks());
    (torch::mse_loss(alone->forward(x), y) / ranks()).backward();
  }
  scaler.unscale_(optimizer);
  expect(torch::allclose(model->fc1->weight.grad(), alone->fc1->weight.grad(), 1e-5, 1e-7),
         "the same gradients as without the scaler");
  expect_thrown<std::logic_error>([&] { scaler.unscale_(optimizer); }, "was already called");
  expect_thrown<std::logic_error>([&] { scaler.state(); }, "call update() before state()");
  expect(step(), "finite gradients lead to a step");
  gradients(1);
  expect(step() && scaler.current_scale() == 8, "the scale grows after two steps");
  expect_same_on_all(*model, "after scaled steps");

  expect_thrown<std::logic_error>([&] { scaler.update(); }, "called before step()");
  optimizer.zero_grad();
  expect_thrown<std::logic_error>([&] { scaler.step(optimizer); }, "call backward() first");
  expect_thrown<trireme::ValueError>([&] { scaler.load_state({}); }, "the state is empty");
  expect_thrown<std::invalid_argument>([] { trireme::torch::GradScaler({.backoff_factor = 2}); }, "between 0 and 1");
  Net narrow;
  narrow->to(at::kHalf);
  torch::optim::SGD other(narrow->parameters(), 0.1);
  for (auto& parameter : narrow->parameters()) parameter.mutable_grad() = torch::zeros_like(parameter);
  expect_thrown<std::invalid_argument>([&] { scaler.step(other); }, "of type float16");
}
TRIREME_TRAIN_FUNCTION(scales);

}  // namespace

int start(int argc, char** argv) {
  trireme::init(argc, argv);
  const Config defaults = {
      {"width", 16}, {"optimizer", "SGD"}, {"scheduler", "step"}, {"precision", "float"}, {"clip", false}};
  return run(argc - 1, argv + 1, defaults,
             {{"train", train_with(trains)}, {"autocast", train_with(casts)}, {"scaler", train_with(scales)}});
}

}  // namespace cases::training
