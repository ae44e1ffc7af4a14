#include <trireme/state.h>

#include <iostream>

// example_state FROM TO: loads a state that examples/python/state.py has saved, changes it, and saves it for Python.
// Both languages read and write the same files.

namespace {

// Prints every tensor of a tree. Optimizer states are dicts with integer keys, which are lists in C++.
void print_tensors(const trireme::Value& value, const std::string& place) {
  if (const auto* tensor = value.get_if<trireme::Tensor>()) {
    std::cout << place << ": " << tensor->describe() << "\n";
  } else if (const auto* dict = value.get_if<trireme::Dict>()) {
    for (const auto& [key, item] : *dict) print_tensors(item, place.empty() ? key : place + "/" + key);
  } else if (const auto* list = value.get_if<trireme::List>()) {
    for (std::size_t i = 0; i < list->size(); ++i) print_tensors((*list)[i], place + "/" + std::to_string(i));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: example_state FROM TO\n";
    return 2;
  }
  trireme::Dict state = trireme::load_state(argv[1]);
  print_tensors(state, "");

  // A tensor is a handle to memory. The memory of a loaded tensor is writable; the file does not change.
  for (float& weight : state["model"]["weight"].as_tensor().values<float>()) weight /= 2;
  state["epoch"] = state["epoch"].get<int>() + 1;
  state["mean"] = trireme::Tensor::of<double>({0.25, 0.75});

  trireme::save_state(argv[2], state);
  std::cout << "epoch " << state["epoch"].get<int>() << " is in " << argv[2] << "\n";
}
