// Stores libtorch tensors in a state and loads them, and connects two workers through the gang's store in libtorch.

#include <ATen/ATen.h>
#include <trireme/state.h>
#include <trireme/store.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "cases.h"

namespace cases::store {
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

// "cuda:0 cuda:1": the devices of both ranks. Nothing is computed on them.
trireme::Value devices() {
  const auto name = [](int rank) { return "device" + std::to_string(rank); };
  trireme::store::set(name(trireme::context().world_rank), trireme::torch::get_device().str());
  const std::string first = trireme::store::get(name(0), std::chrono::seconds(30));
  return first + " " + trireme::store::get(name(1), std::chrono::seconds(30));
}
TRIREME_TRAIN_FUNCTION(devices);

bool devices_are(const std::string& expected, bool share) {
  const auto result = trireme::DataParallelTrainer(devices, {.scaling = {.num_workers = 2, .use_gpu = true},
                                                             .share_cuda_visible_devices = share})
                          .fit();
  const auto seen = result.return_value.get<std::string>();
  if (seen != expected) std::printf("devices: %s\n", seen.c_str());
  return seen == expected;
}

using trireme::torch::from_torch;
using trireme::torch::to_torch;

bool comes_back(const at::Tensor& tensor, const std::string& folder) {
  trireme::save_state(folder, {{"x", from_torch(tensor)}});
  const at::Tensor loaded = to_torch(trireme::load_state(folder)["x"].as_tensor());
  const bool same = loaded.scalar_type() == tensor.scalar_type() && loaded.sizes() == tensor.sizes() &&
                    loaded.to(at::kComplexDouble).equal(tensor.detach().to(at::kComplexDouble));
  if (!same) std::printf("%s is not restored\n", tensor.toString().c_str());
  return same;
}

bool tensors_convert(const std::string& folder) {
  bool right = true;
  for (const auto type : {at::kBool, at::kByte, at::kShort, at::kLong, at::kUInt16, at::kUInt64, at::kHalf,
                          at::kBFloat16, at::kFloat, at::kDouble, at::kComplexFloat, at::kFloat8_e4m3fn}) {
    right = comes_back(at::arange(6).reshape({2, 3}).to(type), folder) && right;
  }
  right = comes_back(at::arange(6).reshape({2, 3}).t(), folder) && right;
  right = comes_back(at::ones({}), folder) && right;
  right = comes_back(at::empty({0, 3}), folder) && right;
  right = comes_back(at::ones({2}).requires_grad_(), folder) && right;

  // Both directions share the memory, which outlives the first owner.
  at::Tensor theirs = at::zeros({2});
  trireme::Tensor ours = from_torch(theirs);
  ours.values<float>()[0] = 5;
  right = theirs[0].item<float>() == 5 && right;
  at::Tensor again = to_torch(ours);
  theirs.reset();
  ours = trireme::Tensor::scalar(1.0F);
  right = again[0].item<float>() == 5 && right;

  try {
    from_torch(at::zeros({2}, at::kComplexDouble));
    right = false;
  } catch (const trireme::ValueError& refused) {
    right = std::string(refused.what()).find("ComplexDouble") != std::string::npos && right;
  }
  return right;
}

}  // namespace

int start(int argc, char** argv) {
  trireme::init(argc, argv, {.num_gpus = 2});
  const auto folder = std::filesystem::temp_directory_path() / ("trireme_torch_" + std::to_string(::getpid()));
  const bool converted = tensors_convert(folder.string());
  std::filesystem::remove_all(folder);
  if (!converted) return 1;
  const auto result = trireme::DataParallelTrainer(meet, {.scaling = {.num_workers = 2}}).fit();
  const bool met = result.return_value.get<bool>();
  if (!devices_are("cuda:0 cuda:1", true) || !devices_are("cuda:0 cuda:0", false)) return 1;
  std::printf("%s\n", met ? "the workers have met" : "the workers have not met");
  return met ? 0 : 1;
}

}  // namespace cases::store
