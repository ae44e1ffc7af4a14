#include "lbfgs_state.h"

#include <ATen/ops/scalar_tensor.h>
#include <torch/optim/lbfgs.h>

#include <deque>
#include <memory>

#include "stored_values.h"

namespace trireme::torch::detail {
namespace {

using ::torch::optim::LBFGS;
using ::torch::optim::LBFGSOptions;
using ::torch::optim::LBFGSParamState;

const std::vector<at::Tensor>& parameters_of(const LBFGS& optimizer) { return optimizer.param_groups()[0].params(); }

List written(const std::deque<at::Tensor>& tensors) {
  List list;
  for (const auto& each : tensors) list.emplace_back(from_torch(each));
  return list;
}

class FlatReader {
 public:
  FlatReader(const Dict& from, const std::vector<at::Tensor>& parameters)
      : from_(from), options_(parameters.at(0).options().requires_grad(false)) {
    for (const auto& each : parameters) numel_ += each.numel();
  }

  const Value& operator[](const char* name) const { return stored_value(from_, "optimizer/state/0", name); }
  // All parameters, concatenated.
  at::Tensor flat(const char* name) const { return flat((*this)[name], name); }
  std::deque<at::Tensor> flats(const char* name) const {
    std::deque<at::Tensor> read;
    for (const Value& each : (*this)[name].as_list()) read.push_back(flat(each, name));
    return read;
  }
  at::Tensor scalar(const Value& value) const { return at::scalar_tensor(stored_number(value), options_); }
  std::deque<at::Tensor> scalars(const char* name) const {
    std::deque<at::Tensor> read;
    for (const Value& each : (*this)[name].as_list()) read.push_back(scalar(each));
    return read;
  }

 private:
  at::Tensor flat(const Value& value, const char* name) const {
    const Tensor& stored = value.as_tensor();
    if (stored.shape() != std::vector<std::int64_t>{numel_}) {
      throw ValueError(c10::str("optimizer/state/0/", name, " is ", stored.describe(),
                                " in the checkpoint; the parameters have ", numel_, " numbers"));
    }
    // Copies, because the stored tensor may be a view of a file.
    return to_torch(stored).to(options_, /*non_blocking=*/false, /*copy=*/true);
  }

  const Dict& from_;
  at::TensorOptions options_;
  std::int64_t numel_ = 0;
};

LBFGSOptions options_from(const Dict& group) {
  const auto stored = [&](const char* name) -> const Value& {
    return stored_value(group, "optimizer/param_groups/0", name);
  };
  LBFGSOptions read(stored_number(stored("lr")));
  read.max_iter(stored("max_iter").as_int());
  read.max_eval(stored("max_eval").as_int());
  read.tolerance_grad(stored_number(stored("tolerance_grad")));
  read.tolerance_change(stored_number(stored("tolerance_change")));
  read.history_size(stored("history_size").as_int());
  if (const Value& search = stored("line_search_fn"); !search.is_null()) read.line_search_fn(search.as_string());
  return read;
}

std::unique_ptr<LBFGSParamState> state_from(const Dict& state, const std::vector<at::Tensor>& parameters) {
  const FlatReader stored(state, parameters);
  auto read = std::make_unique<LBFGSParamState>();
  read->func_evals(stored["func_evals"].as_int());
  read->n_iter(stored["n_iter"].as_int());
  if (!state.contains("d")) return read;  // saved before the first step
  read->d(stored.flat("d"));
  read->t(stored_number(stored["t"]));
  read->prev_loss(stored_number(stored["prev_loss"]));
  read->H_diag(stored.scalar(stored["H_diag"]));
  read->prev_flat_grad(stored.flat("prev_flat_grad"));
  read->old_dirs(stored.flats("old_dirs"));
  read->old_stps(stored.flats("old_stps"));
  read->ro(stored.scalars("ro"));
  return read;
}

}  // namespace

Dict lbfgs_state(const LBFGS& optimizer) {
  const auto& parameters = parameters_of(optimizer);
  List states, indices;
  for (std::size_t i = 0; i < parameters.size(); ++i) indices.emplace_back(i);
  const auto found = optimizer.state().find(parameters.at(0).unsafeGetTensorImpl());
  if (found != optimizer.state().end()) {
    const auto& kept = static_cast<const LBFGSParamState&>(*found->second);
    Dict state = {{"func_evals", kept.func_evals()}, {"n_iter", kept.n_iter()}};
    if (kept.d().defined()) {
      // Omits "al": each step computes it before reading it.
      state["d"] = from_torch(kept.d());
      state["t"] = kept.t();
      state["old_dirs"] = written(kept.old_dirs());
      state["old_stps"] = written(kept.old_stps());
      state["ro"] = written(kept.ro());
      state["H_diag"] = from_torch(kept.H_diag());
      state["prev_flat_grad"] = from_torch(kept.prev_flat_grad());
      state["prev_loss"] = kept.prev_loss();
    }
    states.push_back(List{0, std::move(state)});
  }
  const auto& options = static_cast<const LBFGSOptions&>(optimizer.param_groups()[0].options());
  Dict group = {{"lr", options.lr()},
                {"max_iter", options.max_iter()},
                {"max_eval", options.max_eval().value_or(options.max_iter() * 5 / 4)},
                {"tolerance_grad", options.tolerance_grad()},
                {"tolerance_change", options.tolerance_change()},
                {"history_size", options.history_size()},
                {"line_search_fn", options.line_search_fn() ? Value(*options.line_search_fn()) : Value()},
                {"params", std::move(indices)}};
  return {{"state", Dict{{"$dict", std::move(states)}}}, {"param_groups", List{std::move(group)}}};
}

void load_lbfgs(LBFGS& optimizer, const Dict& state) {
  const auto& parameters = parameters_of(optimizer);
  auto options = std::make_unique<LBFGSOptions>(options_from(state["param_groups"][0].as_dict()));
  std::unique_ptr<LBFGSParamState> read;
  if (const Dict& states = state["state"].as_dict(); !states.empty() && !states["$dict"].as_list().empty()) {
    read = state_from(states["$dict"][0][1].as_dict(), parameters);
  }

  // No exceptions from here on.
  optimizer.param_groups()[0].set_options(std::move(options));
  optimizer.state().clear();
  if (read) optimizer.state()[parameters[0].unsafeGetTensorImpl()] = std::move(read);
}

}  // namespace trireme::torch::detail
