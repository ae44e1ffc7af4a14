#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <optional>

#include "trireme/export.h"
#include "trireme/value.h"

// Mixed precision, for which Python has torch.autocast and torch.amp.GradScaler.

namespace torch::optim {
class Optimizer;
}

namespace trireme::torch {

// While it lives, this thread computes what is safe in the narrower type, matrix products and convolutions above all,
// and the rest as before. Put the forward pass and the loss inside, backward() outside. Guards may be nested; each
// restores what it has found.
class TRIREME_API Autocast {
 public:
  // kBFloat16, kHalf (which needs a GradScaler), or kFloat for a part in full precision. `device`: the kind of
  // get_device() where not given. Throws std::invalid_argument for other types.
  [[nodiscard]] explicit Autocast(c10::ScalarType type = c10::kBFloat16, std::optional<c10::DeviceType> device = {});
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_, cache_was_enabled_;
  c10::ScalarType type_before_;
  bool changes_type_ = false;
};

struct GradScalerOptions {
  bool enabled = true;  // or else it changes nothing: for programs that choose their type when they run
  double init_scale = 65536;
  double growth_factor = 2, backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;  // steps without overflow until the scale grows
};

// Float16 loses small gradients. They are computed of a larger loss instead, and a step whose gradients overflow is
// left out:
//
//   scaler.scale(loss).backward();
//   scaler.unscale_(optimizer);  // only where gradients are looked at before the step, as by clip_grad_norm_()
//   scaler.step(optimizer);
//   scaler.update();
//
// Gradients of a prepared model are averaged, so all ranks see the same overflows and leave out the same steps.
class TRIREME_API GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options = {});

  at::Tensor scale(const at::Tensor& loss) const;
  void unscale_(::torch::optim::Optimizer& optimizer);
  // Whether it made the step.
  bool step(::torch::optim::Optimizer& optimizer);
  // After the step() of every optimizer.
  void update();

  double current_scale() const { return options_.enabled ? scale_ : 1; }

  // What Python's GradScaler.state_dict() has. Between update() and the next unscale_() or step().
  Dict state() const;
  void load_state(const Dict& state);

 private:
  // Since the last update().
  struct Progress {
    at::Tensor found_inf;  // of one element, on the device of the gradients: read when it is needed, not before
    bool stepped = false;
  };

  GradScalerOptions options_;
  double scale_;
  std::int64_t steps_without_overflow_ = 0;
  std::map<const ::torch::optim::Optimizer*, Progress> progress_;
};

}  // namespace trireme::torch
