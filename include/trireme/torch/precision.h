#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <optional>

#include "trireme/export.h"
#include "trireme/value.h"

// Mixed precision: the counterparts of Python's torch.autocast and torch.amp.GradScaler.

namespace torch::optim {
class Optimizer;
}

namespace trireme::torch {

// During its lifetime, this thread computes operations that are safe in the narrower type, mainly matrix products and
// convolutions, in that type. Put the forward pass and the loss inside, backward() outside. Guards may be nested; each
// restores the previous state.
class TRIREME_API Autocast {
 public:
  // kBFloat16, kHalf (which needs a GradScaler), or kFloat for a section in full precision. `device` defaults to the
  // type of get_device(). Throws std::invalid_argument for other types.
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
  bool enabled = true;  // false: no effect, for programs that choose their type at run time
  double init_scale = 65536;
  double growth_factor = 2, backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;  // steps without overflow before the scale grows
};

// Small gradients underflow in float16. The scaler computes them from a scaled loss and skips steps whose gradients
// overflow:
//
//   scaler.scale(loss).backward();
//   scaler.unscale_(optimizer);  // only if gradients are used before the step, as in clip_grad_norm_()
//   scaler.step(optimizer);
//   scaler.update();
//
// Gradients of a prepared model are averaged, so all ranks see the same overflows and skip the same steps.
class TRIREME_API GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options = {});

  at::Tensor scale(const at::Tensor& loss) const;
  void unscale_(::torch::optim::Optimizer& optimizer);
  // False if the step was skipped.
  bool step(::torch::optim::Optimizer& optimizer);
  // Call it after the step() of every optimizer.
  void update();

  double current_scale() const { return options_.enabled ? scale_ : 1; }

  // The content of Python's GradScaler.state_dict(). Call it between update() and the next unscale_() or step().
  Dict state() const;
  void load_state(const Dict& state);

 private:
  // Since the last update().
  struct Progress {
    at::Tensor found_inf;  // one element, on the device of the gradients; read only when needed
    bool stepped = false;
  };

  GradScalerOptions options_;
  double scale_;
  std::int64_t steps_without_overflow_ = 0;
  std::map<const ::torch::optim::Optimizer*, Progress> progress_;
};

}  // namespace trireme::torch
