#include <sys/socket.h>
#include <sys/un.h>
#include <torch/torch.h>
#include <trireme/torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

// The C++ side of bench/ddp: the steps of bench/ddp/loop.py, on request of the benchmark, and a loader that resumes
// near the end of an epoch.

namespace {

using Clock = std::chrono::steady_clock;
using torch::Tensor;

constexpr int kBatches = 4;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set: bench/run.py ddp runs this program");
  return value;
}

std::int64_t nanoseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

// "64-64-10"
std::vector<std::int64_t> widths_of(const std::string& network) {
  std::vector<std::int64_t> widths;
  std::istringstream in(network);
  for (std::string width; std::getline(in, width, '-');) widths.push_back(std::stoll(width));
  return widths;
}

class Training {
 public:
  explicit Training(const std::vector<std::int64_t>& widths)
      : model_(trireme::torch::prepare_model(network(widths))),
        optimizer_(model_->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)) {
    const auto batch = std::stoll(variable("BENCH_BATCH"));
    torch::manual_seed(1 + static_cast<std::uint64_t>(trireme::context().world_rank));
    inputs_ = torch::randn({kBatches, batch, widths.front()});
    targets_ = torch::randint(widths.back(), {kBatches, batch}, torch::kLong);
  }

  Tensor step() {
    const int batch = steps_++ % kBatches;
    optimizer_.zero_grad();
    const Tensor loss = torch::cross_entropy_loss(model_(inputs_[batch]), targets_[batch]);
    loss.backward();
    optimizer_.step();
    return loss;
  }

 private:
  static torch::nn::Sequential network(const std::vector<std::int64_t>& widths) {
    torch::manual_seed(0);
    torch::nn::Sequential layers;
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      if (i > 0) layers->push_back(torch::nn::ReLU());
      layers->push_back(torch::nn::Linear(widths[i], widths[i + 1]));
    }
    return layers;
  }

  trireme::torch::Model<torch::nn::SequentialImpl> model_;
  torch::optim::SGD optimizer_;
  Tensor inputs_, targets_;
  int steps_ = 0;
};

std::int64_t cpu_nanoseconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// The last loss, the CPU nanoseconds of all steps, and the wall-clock nanoseconds of each.
std::string block(Training& training, int steps) {
  const auto began = cpu_nanoseconds();
  std::vector<Clock::time_point> stamps = {Clock::now()};
  Tensor loss;
  for (int i = 0; i < steps; ++i) {
    loss = training.step();
    stamps.push_back(Clock::now());
  }
  const auto worked = cpu_nanoseconds() - began;
  std::ostringstream answer;
  answer << loss.item<double>() << " " << worked;
  for (std::size_t i = 1; i < stamps.size(); ++i) answer << " " << nanoseconds(stamps[i] - stamps[i - 1]);
  answer << "\n";
  return answer.str();
}

std::FILE* connect_to(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM, 0);
  if (::connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    throw std::runtime_error("cannot connect to " + path);
  }
  return ::fdopen(descriptor, "r+");
}

void serve(const trireme::Config& config) {
  torch::set_num_threads(1);
  std::vector<std::unique_ptr<Training>> trainings;
  std::istringstream networks(variable("BENCH_NETWORKS"));
  for (std::string network; networks >> network;) {
    trainings.push_back(std::make_unique<Training>(widths_of(network)));
  }
  std::FILE* connection = connect_to(variable("BENCH_SOCKET"));
  const int descriptor = ::fileno(connection);
  const auto answer = [&](const std::string& line) {
    if (::write(descriptor, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      throw std::runtime_error("the benchmark has exited");
    }
  };
  answer(config["form"].get<std::string>() + " " + std::to_string(trireme::context().world_rank) + "\n");
  int network = 0, steps = 0;
  while (std::fscanf(connection, "%d %d", &network, &steps) == 2) {
    answer(block(*trainings.at(static_cast<std::size_t>(network)), steps));
  }
  std::fclose(connection);
}
TRIREME_TRAIN_FUNCTION(serve);

struct Rows : torch::data::datasets::Dataset<Rows> {
  explicit Rows(std::int64_t count)
      : inputs(torch::arange(8 * count).to(torch::kFloat).reshape({count, 8})), targets(torch::zeros({count})) {}
  torch::data::Example<> get(std::size_t index) override {
    const auto row = static_cast<std::int64_t>(index);
    return {inputs[row], targets[row]};
  }
  std::optional<std::size_t> size() const override { return static_cast<std::size_t>(inputs.size(0)); }
  Tensor inputs, targets;
};

// Seconds to the first batch at 90 % of an epoch: from a position, and with libtorch's loader and sampler, which must
// produce every batch before it.
void resume() {
  constexpr std::size_t kBatch = 32;
  const auto& context = trireme::context();
  if (context.world_rank != 0) return;
  torch::set_num_threads(1);
  const auto samples = std::stoull(variable("BENCH_SAMPLES")), repeat = std::stoull(variable("BENCH_REPEAT"));
  const auto ranks = static_cast<std::size_t>(context.world_size);
  const auto skipped = samples * 9 / 10 / (kBatch * ranks);
  const auto data = Rows(static_cast<std::int64_t>(samples)).map(torch::data::transforms::Stack<>());
  auto prepared = trireme::torch::prepare_data_loader(data, torch::data::DataLoaderOptions(kBatch));
  auto state = prepared.state();
  state["samples"] = skipped * kBatch * ranks;
  const auto seconds = [](Clock::time_point began) {
    return std::to_string(static_cast<double>(nanoseconds(Clock::now() - began)) / 1e9);
  };
  std::string mine, plain;
  for (std::size_t epoch = 0; epoch < repeat; ++epoch) {
    state["epoch"] = epoch;
    auto began = Clock::now();
    prepared.load_state(state);
    for (const auto& batch : prepared) {
      TORCH_CHECK(batch.data.size(0) == kBatch);
      break;
    }
    mine += (epoch == 0 ? "" : ", ") + seconds(began);

    began = Clock::now();
    const auto loader =
        torch::data::make_data_loader(data, torch::data::samplers::DistributedRandomSampler(samples, ranks, 0), kBatch);
    auto batches = loader->begin();
    for (std::size_t i = 0; i < skipped; ++i) ++batches;
    TORCH_CHECK(batches->data.size(0) == kBatch);
    plain += (epoch == 0 ? "" : ", ") + seconds(began);
  }
  std::ofstream file(variable("BENCH_FOLDER") + "/times.json");
  file << R"({"resume, C++": [)" << mine << R"(], "resume, libtorch": [)" << plain << "]}\n";
}
TRIREME_TRAIN_FUNCTION(resume);

}  // namespace

// bench_ddp steps FORM | resume; bench/ddp/bench.py runs it.
int main(int argc, char** argv) {
  trireme::init(argc, argv);
  const std::string what = argc > 1 ? argv[1] : "";
  trireme::TrainerOptions options = {.scaling = {.num_workers = 2}};
  if (what == "steps" && argc > 2) {
    options.config["form"] = argv[2];
    trireme::DataParallelTrainer(serve, options).fit();
  } else if (what == "resume") {
    trireme::DataParallelTrainer(resume, options).fit();
  } else {
    std::cerr << "bench_ddp steps FORM | resume\n";
    return 2;
  }
  return 0;
}
