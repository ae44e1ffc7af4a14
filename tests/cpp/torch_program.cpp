// Two workers of a C++ program meet through the gang's store, as libtorch sees it.

#include <trireme/torch/torch.h>

#include <cstdio>

namespace {

std::vector<std::uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

trireme::Value meet() {
  const auto store = trireme::torch::store();
  store->setTimeout(std::chrono::seconds(30));
  const std::string rank = std::to_string(trireme::context().world_rank);
  const std::string other = std::to_string(1 - trireme::context().world_rank);
  store->set("rank" + rank, bytes("here is " + rank));
  store->wait({"rank0", "rank1"});
  const bool heard = store->get("rank" + other) == bytes("here is " + other);
  const bool checked = store->check({"rank0", "rank1"}) && !store->check({"nobody"});
  const auto count = store->add("count", 1);
  trireme::collective::barrier();
  const bool counted = count >= 1 && store->add("count", 0) == 2;
  const bool on_cpu = trireme::torch::get_device().is_cpu();
  return heard && checked && counted && on_cpu;
}
TRIREME_TRAIN_FUNCTION(meet);

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  const auto result = trireme::DataParallelTrainer(meet, {.scaling = {.num_workers = 2}}).fit();
  const bool met = result.return_value.get<bool>();
  std::printf("%s\n", met ? "the workers have met" : "the workers have not met");
  return met ? 0 : 1;
}
