#include <torch/torch.h>
#include <trireme/torch/torch.h>

#include <csignal>
#include <iostream>
#include <string>

// A small convolutional network on synthetic digits, with libtorch on two workers. Every epoch ends with a checkpoint
// that is written during the next epoch. With --break a worker is killed, and the run resumes from the newest
// checkpoint. Python can load these checkpoints too (docs/cpp_torch.md).

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl()
      : conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).padding(1)))),
        norm(register_module("norm", torch::nn::BatchNorm2d(8))),
        fc(register_module("fc", torch::nn::Linear(8 * 4 * 4, 10))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return fc(torch::max_pool2d(torch::relu(norm(conv(x))), 2).flatten(1));
  }
  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d norm;
  torch::nn::Linear fc;
};
TORCH_MODULE(Net);

// Ten images of 8 x 8, repeated with noise. Every rank generates the same data; the loader selects its part.
struct Digits : torch::data::datasets::Dataset<Digits> {
  explicit Digits(int count) : labels(torch::arange(count) % 10) {
    auto random = at::make_generator<at::CPUGeneratorImpl>(7);
    const auto pictures = torch::rand({10, 1, 8, 8}, random);
    images = pictures.index_select(0, labels) + 0.3 * torch::randn({count, 1, 8, 8}, random);
  }
  torch::data::Example<> get(std::size_t index) override {
    const auto row = static_cast<std::int64_t>(index);
    return {images[row], labels[row]};
  }
  std::optional<std::size_t> size() const override { return static_cast<std::size_t>(labels.size(0)); }
  torch::Tensor labels, images;
};

void train(const trireme::Config& config) {
  auto model = trireme::torch::prepare_model(Net());
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.01));
  torch::optim::StepLR scheduler(optimizer, 4, 0.5);
  auto loader = trireme::torch::prepare_data_loader(Digits(640).map(torch::data::transforms::Stack<>()),
                                                    torch::data::DataLoaderOptions(16).workers(1));

  if (const auto checkpoint = trireme::get_checkpoint()) {  // the loader has already resumed
    const auto extras = trireme::torch::load(*checkpoint, *model, optimizer);
    trireme::torch::load_state(scheduler, extras["scheduler"].as_dict());
    std::cout << "resuming with epoch " << loader.epoch() << std::endl;
  }

  const auto& context = trireme::context();
  while (loader.epoch() < 5) {
    const auto epoch = loader.epoch();
    double loss_sum = 0, right = 0, seen = 0;
    for (auto& batch : loader) {
      optimizer.zero_grad();
      const auto out = model(batch.data);
      const auto loss = torch::cross_entropy_loss(out, batch.target);
      loss.backward();  // also averages the gradients of all workers
      optimizer.step();
      loss_sum += loss.item<double>();
      right += out.argmax(1).eq(batch.target).sum().item<double>();
      seen += static_cast<double>(batch.target.size(0));
    }
    scheduler.step();
    if (config["break"].get<bool>() && epoch == 3 && context.world_rank == 1 && context.attempt == 0) {
      std::raise(SIGKILL);
    }

    std::optional<trireme::Checkpoint> checkpoint;
    if (context.world_rank == 0) {
      checkpoint = trireme::torch::save(*model, optimizer, {{"scheduler", trireme::torch::state_of(scheduler)}});
    }
    const double steps = static_cast<double>(loader.num_batches());
    trireme::report({{"epoch", epoch}, {"loss", loss_sum / steps}, {"accuracy", right / seen}}, checkpoint,
                    {.checkpoint_upload_mode = trireme::CheckpointUploadMode::kAsync});
  }
}
TRIREME_TRAIN_FUNCTION(train);

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  const bool broken = argc > 1 && std::string(argv[1]) == "--break";
  const auto result =
      trireme::DataParallelTrainer(train, {.config = {{"break", broken}},
                                           .scaling = {.num_workers = 2},
                                           .run = {.name = "torch_digits", .failure_config = {.max_failures = 1}}})
          .fit();
  std::cout << "accuracy " << result.metrics->at("accuracy").get<double>() << " after " << result.attempts
            << (result.attempts == 1 ? " attempt\n" : " attempts\n");
}
