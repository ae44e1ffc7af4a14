#include "cases.h"

// Models on many ranks. Checks here, on the workers, that the ranks agree.

namespace cases::models {
namespace {

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

// Each rank uses one of the first two heads; no rank uses the last one.
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

void copy_parameters(const torch::nn::Module& from, torch::nn::Module& to) {
  trireme::torch::load_state(to, trireme::torch::state_of(from));
  to.zero_grad();
}

void expect_close(const Tensor& one, const Tensor& other, const std::string& what) {
  expect(one.defined() && other.defined() && torch::allclose(one, other, 1e-5, 1e-7), what);
}

// The gradients of one process with the rows of all ranks.
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
  expect(model.module() == net.ptr() && model->fc1.get() == net->fc1.get(), "the model has the original module");
  expect_same_on_all(*model, "after prepare_model()");
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < 6; ++step) {
    Net reference;
    copy_parameters(*model, *reference);
    optimizer.zero_grad();
    const auto [x, y] = rows(step, rank(), ranks());
    // The module may be called in any way.
    const Tensor out = step % 3 == 0 ? model(x) : step % 3 == 1 ? model.forward(x) : model->forward(x);
    const Tensor loss = torch::mse_loss(out, y);
    torch::autograd::grad({loss}, model->parameters(), {},
                          /*retain_graph=*/true);  // local to this rank, not averaged
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
      expect(model->fc1->weight.grad().equal(alone->fc1->weight.grad()), "nothing is averaged under no_sync()");
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
    expect(!untouched.defined() || untouched.abs().max().item<float>() == 0, "the unused head gets no gradient");
    optimizer.step();
    expect_same_on_all(*model, "after step " + std::to_string(step));
  }
}
TRIREME_TRAIN_FUNCTION(parameters_may_be_unused);

// Two losses of different parameters, each with its own backward().
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

}  // namespace

int start(int argc, char** argv) {
  trireme::init(argc, argv);
  if (argc > 2 && std::string(argv[2]) == "outside") {
    const auto refused = [](const char* what, const std::function<void()>& act) {
      expect_thrown<std::runtime_error>(act, std::string(what) + "() cannot be used outside of a training function");
      std::cout << "REFUSED " << what << "\n";
    };
    refused("prepare_model", [] { trireme::torch::prepare_model(Net()); });
    refused("Autocast", [] { const trireme::torch::Autocast guard; });
    return 0;
  }
  return run(argc - 1, argv + 1, {},
             {{"gradients", train_with(gradients_are_averaged)},
              {"accumulation", train_with(gradients_accumulate)},
              {"buffers", train_with(buffers_are_those_of_rank_zero)},
              {"unused", train_with(parameters_may_be_unused)},
              {"two_backwards", train_with(a_step_may_have_two_backwards)},
              {"bad", train_with(prepares_what_is_bad)}});
}

}  // namespace cases::models
