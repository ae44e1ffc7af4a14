#include <fcntl.h>
#include <torch/torch.h>
#include <trireme/torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

// The C++ side of bench/recover: the loop of bench/recover/loop.py.

namespace {

constexpr std::int64_t kStepsPerCheckpoint = 5;
constexpr std::int64_t kStepsPerFault = 12;
constexpr std::chrono::seconds kRest(2);

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set: bench/run.py recover runs this");
  return value;
}

// One write each: the process may be killed at the next instruction.
void stamp(const std::string& what) {
  const auto path = variable("BENCH_FOLDER") + "/rank_" + std::to_string(trireme::context().world_rank) + ".txt";
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  char line[64];
  const int length = std::snprintf(line, sizeof(line), "%s %.6f\n", what.c_str(), now.count());
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (::write(file, line, static_cast<std::size_t>(length)) != length) throw std::runtime_error("cannot write " + path);
  ::close(file);
}

void break_once(std::int64_t step) {
  const auto path = variable("BENCH_FOLDER") + "/fault_" + std::to_string(step);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return;
  std::this_thread::sleep_for(kRest);
  stamp("fault");
  std::raise(SIGKILL);
}

void train() {
  const auto& context = trireme::context();
  stamp("enter_" + std::to_string(context.world_size));
  torch::set_num_threads(1);
  torch::manual_seed(0);
  auto model = trireme::torch::prepare_model(
      torch::nn::Sequential(torch::nn::Linear(64, 64), torch::nn::ReLU(), torch::nn::Linear(64, 10)));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  std::int64_t step = 0;
  if (const auto checkpoint = trireme::get_checkpoint()) {
    step = trireme::torch::load(*checkpoint, *model, optimizer)["step"].as_int();
  }
  const auto inputs = torch::randn({32, 64});
  const auto targets = torch::randint(10, {32}, torch::kLong);
  const auto last = kStepsPerFault * (std::stoll(variable("BENCH_FAULTS")) + 1);
  while (step < last) {
    ++step;
    optimizer.zero_grad();
    torch::cross_entropy_loss(model(inputs), targets).backward();
    optimizer.step();
    stamp("step");
    if (step % kStepsPerCheckpoint == 0) {
      std::optional<trireme::Checkpoint> checkpoint;
      if (context.world_rank == 0) checkpoint = trireme::torch::save(*model, optimizer, {{"step", step}});
      trireme::report({{"step", step}}, checkpoint);
    }
    if (context.world_rank == 1 && step % kStepsPerFault == 0 && step < last) break_once(step);
  }
}
TRIREME_TRAIN_FUNCTION(train);

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  trireme::DataParallelTrainer(
      train, {.scaling = {.num_workers = 2}, .run = {.name = "recover", .failure_config = {.max_failures = -1}}})
      .fit();
}
