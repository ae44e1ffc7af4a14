#include "trireme/torch/precision.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/optim/optimizer.h>

#include <cmath>
#include <stdexcept>

#include "expect_training.h"
#include "trireme/torch/torch.h"

namespace trireme::torch {
namespace {

namespace autocast = at::autocast;

c10::DeviceType device_or_default(std::optional<c10::DeviceType> device) {
  if (device) return *device;
  detail::expect_training("Autocast");
  return get_device().type();
}

// The defined gradients, by type; a module is on one device.
std::map<c10::ScalarType, std::vector<at::Tensor>> gradients_of(const ::torch::optim::Optimizer& optimizer) {
  std::map<c10::ScalarType, std::vector<at::Tensor>> found;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      if (gradient.scalar_type() == c10::kHalf) {
        throw std::invalid_argument(
            "GradScaler: a parameter is of type float16, whose gradients cannot be unscaled: keep the parameters in "
            "float32 and use Autocast");
      }
      found[gradient.scalar_type()].push_back(gradient.is_sparse() ? gradient._values() : gradient);
    }
  }
  return found;
}

double checked(double value, bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(c10::str("GradScaler: ", what, ", got ", value));
  return value;
}

}  // namespace

Autocast::Autocast(c10::ScalarType type, std::optional<c10::DeviceType> device)
    : device_(device_or_default(device)),
      was_enabled_(autocast::is_autocast_enabled(device_)),
      cache_was_enabled_(autocast::is_autocast_cache_enabled()),
      type_before_(autocast::get_autocast_dtype(device_)) {
  const bool narrow = type == c10::kBFloat16 || type == c10::kHalf;
  if (!narrow && type != c10::kFloat) {
    throw std::invalid_argument(c10::str("Autocast: the type is ", c10::toString(type),
                                         "; it must be kBFloat16, kHalf, or kFloat for full precision"));
  }
  changes_type_ = narrow && type != type_before_;
  if (changes_type_) autocast::clear_cache();
  autocast::set_autocast_enabled(device_, narrow);
  if (narrow) autocast::set_autocast_dtype(device_, type);
  autocast::set_autocast_cache_enabled(true);
  autocast::increment_nesting();
}

Autocast::~Autocast() {
  // The cache has copies of the parameters, which the next step changes, and does not record their requested type.
  if (autocast::decrement_nesting() == 0 || changes_type_) autocast::clear_cache();
  autocast::set_autocast_enabled(device_, was_enabled_);
  autocast::set_autocast_dtype(device_, type_before_);
  autocast::set_autocast_cache_enabled(cache_was_enabled_);
}

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options),
      scale_(checked(options.init_scale, options.init_scale > 0, "init_scale must be greater than 0")) {
  checked(options.growth_factor, options.growth_factor > 1, "growth_factor must be greater than 1");
  checked(options.backoff_factor, options.backoff_factor > 0 && options.backoff_factor < 1,
          "backoff_factor must be between 0 and 1");
  checked(static_cast<double>(options.growth_interval), options.growth_interval > 0,
          "growth_interval must be at least 1");
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  if (!options_.enabled) return loss;
  // Multiplies by a tensor, not a number: a float16 loss then becomes float32, which can hold the product.
  return loss * at::full({}, scale_, loss.options().dtype(c10::kFloat).requires_grad(false));
}

void GradScaler::unscale_(::torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  Progress& progress = progress_[&optimizer];
  if (progress.found_inf.defined()) {
    throw std::logic_error(progress.stepped
                               ? "GradScaler: unscale_() was called after step(); call it before step(), then update()"
                               : "GradScaler: unscale_() was already called for this optimizer; call update() first");
  }
  const at::NoGradGuard no_grad;
  const float inverse = static_cast<float>(1 / scale_);
  for (auto& [type, gradients] : gradients_of(optimizer)) {
    const auto options = gradients.front().options().dtype(c10::kFloat).layout(c10::kStrided);
    if (!progress.found_inf.defined()) progress.found_inf = at::zeros({1}, options);
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, progress.found_inf, at::full({1}, inverse, options));
  }
  if (!progress.found_inf.defined()) {
    progress_.erase(&optimizer);
    throw std::logic_error("GradScaler: none of the optimizer's parameters has a gradient: call backward() first");
  }
}

bool GradScaler::step(::torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  if (!progress_[&optimizer].found_inf.defined()) unscale_(optimizer);
  Progress& progress = progress_.at(&optimizer);
  if (progress.stepped)
    throw std::logic_error("GradScaler: step() was already called: call update() after each step()");
  progress.stepped = true;
  if (progress.found_inf.item<float>() != 0) return false;
  optimizer.step();
  return true;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  if (progress_.empty()) throw std::logic_error("GradScaler: update() was called before step()");
  bool overflow = false;
  for (const auto& [optimizer, each] : progress_) overflow |= each.found_inf.item<float>() != 0;
  progress_.clear();
  if (overflow) {
    scale_ *= options_.backoff_factor;
    steps_without_overflow_ = 0;
  } else if (++steps_without_overflow_ == options_.growth_interval) {
    // Gradients are scaled in float32.
    const double grown = scale_ * options_.growth_factor;
    if (std::isfinite(static_cast<float>(grown))) scale_ = grown;
    steps_without_overflow_ = 0;
  }
}

Dict GradScaler::state() const {
  if (!options_.enabled) return {};
  if (!progress_.empty()) throw std::logic_error("GradScaler: call update() before state()");
  return {{"scale", scale_},
          {"growth_factor", options_.growth_factor},
          {"backoff_factor", options_.backoff_factor},
          {"growth_interval", options_.growth_interval},
          {"_growth_tracker", steps_without_overflow_}};
}

void GradScaler::load_state(const Dict& state) {
  if (!options_.enabled) return;
  if (state.empty()) {
    throw ValueError("GradScaler: the state is empty: it was saved by a disabled GradScaler; do not load it");
  }
  GradScaler loaded({.init_scale = state["scale"].as_double(),
                     .growth_factor = state["growth_factor"].as_double(),
                     .backoff_factor = state["backoff_factor"].as_double(),
                     .growth_interval = state["growth_interval"].as_int()});
  loaded.steps_without_overflow_ = state["_growth_tracker"].as_int();
  *this = std::move(loaded);
}

}  // namespace trireme::torch
