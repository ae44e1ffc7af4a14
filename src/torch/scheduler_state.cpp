#include <torch/optim/schedulers/lr_scheduler.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>

#include <charconv>
#include <limits>

#include "trireme/torch/state.h"

namespace trireme::torch {
namespace {

using ::torch::optim::LRScheduler;
using Plateau = ::torch::optim::ReduceLROnPlateauScheduler;

// In libtorch the steps of a scheduler are protected.
class Steps : public LRScheduler {
 public:
  static unsigned& of(LRScheduler& scheduler) { return scheduler.*(&Steps::step_count_); }
  static std::vector<double> rates(const LRScheduler& scheduler) { return (scheduler.*(&Steps::get_current_lrs))(); }
};

// The members of the plateau scheduler are private, but an explicit instantiation may name them; the compiler checks
// them against libtorch's declarations.
struct Fields {
  Plateau::SchedulerMode Plateau::*mode;
  Plateau::ThresholdMode Plateau::*threshold_mode;
  float Plateau::*factor;
  double Plateau::*threshold;
  double Plateau::*eps;
  std::vector<float> Plateau::*min_lrs;
  int Plateau::*patience;
  int Plateau::*cooldown;
  int Plateau::*cooldown_counter;
  int Plateau::*num_bad_epochs;
  int Plateau::*last_epoch;
  float Plateau::*best;
  float Plateau::*mode_worse;
};
Fields fields_of_plateau();
template <auto... kMembers>
struct Show {
  friend Fields fields_of_plateau() { return {kMembers...}; }
};
template struct Show<&Plateau::mode, &Plateau::threshold_mode, &Plateau::factor, &Plateau::threshold, &Plateau::eps,
                     &Plateau::min_lrs, &Plateau::patience, &Plateau::cooldown, &Plateau::cooldown_counter,
                     &Plateau::num_bad_epochs, &Plateau::last_epoch, &Plateau::best, &Plateau::mode_worse>;

const Value& need(const Dict& state, const char* name) {
  if (const Value* found = state.find(name)) return *found;
  throw ValueError(std::string("the scheduler's state has no \"") + name +
                   "\": it is from a different kind of scheduler");
}

// The double with the shortest text: 0.1f becomes 0.1, as in Python, not 0.10000000149.
double as_written(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  double result = 0;
  std::from_chars(text, end, result);
  return result;
}

template <typename Mode>
Mode one_of(const Dict& state, const char* name, std::pair<const char*, Mode> first,
            std::pair<const char*, Mode> second) {
  const std::string& stored = need(state, name).as_string();
  if (stored == first.first) return first.second;
  if (stored == second.first) return second.second;
  throw ValueError(std::string("the scheduler's ") + name + " is \"" + stored + "\"; it must be \"" + first.first +
                   "\" or \"" + second.first + "\"");
}

std::vector<float> lowest_rates(const Dict& state, std::size_t count) {
  std::vector<float> rates;
  for (const Value& each : need(state, "min_lrs").as_list()) rates.push_back(each.get<float>());
  if (rates.size() == count) return rates;
  throw ValueError("the scheduler's state is from an optimizer with " + std::to_string(rates.size()) +
                   " parameter groups, but this one has " + std::to_string(count));
}

}  // namespace

Dict state_of(const LRScheduler& scheduler) {
  const std::int64_t steps = Steps::of(const_cast<LRScheduler&>(scheduler));
  List rates;
  for (const double rate : Steps::rates(scheduler)) rates.emplace_back(rate);
  // Python counts a step before computing the rate, libtorch after it. The next step must be the same in both.
  return {{"last_epoch", steps - 1}, {"_step_count", steps}, {"_last_lr", rates}};
}

void load_state(LRScheduler& scheduler, const Dict& state) {
  Steps::of(scheduler) = static_cast<unsigned>(need(state, "last_epoch").get<std::int64_t>() + 1);
}

Dict state_of(const Plateau& scheduler) {
  const Fields its = fields_of_plateau();
  List lowest;
  for (const float rate : scheduler.*its.min_lrs) lowest.emplace_back(as_written(rate));
  const bool least = scheduler.*its.mode == Plateau::min;
  // Before the first step libtorch uses the worst finite number; for "max" it uses a number that is not even low.
  const bool none = scheduler.*its.best == scheduler.*its.mode_worse;
  const double worst = least ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
  return {{"mode", least ? "min" : "max"},
          {"threshold_mode", scheduler.*its.threshold_mode == Plateau::rel ? "rel" : "abs"},
          {"factor", as_written(scheduler.*its.factor)},
          {"threshold", scheduler.*its.threshold},
          {"eps", scheduler.*its.eps},
          {"min_lrs", std::move(lowest)},
          {"patience", scheduler.*its.patience},
          {"cooldown", scheduler.*its.cooldown},
          {"cooldown_counter", scheduler.*its.cooldown_counter},
          {"num_bad_epochs", scheduler.*its.num_bad_epochs},
          {"last_epoch", scheduler.*its.last_epoch},
          {"best", none ? worst : static_cast<double>(scheduler.*its.best)}};
}

void load_state(Plateau& scheduler, const Dict& state) {
  const Fields its = fields_of_plateau();
  Plateau loaded = scheduler;  // so that an error changes nothing
  loaded.*its.mode = one_of<Plateau::SchedulerMode>(state, "mode", {"min", Plateau::min}, {"max", Plateau::max});
  loaded.*its.threshold_mode =
      one_of<Plateau::ThresholdMode>(state, "threshold_mode", {"rel", Plateau::rel}, {"abs", Plateau::abs});
  loaded.*its.factor = need(state, "factor").get<float>();
  loaded.*its.threshold = need(state, "threshold").as_double();
  loaded.*its.eps = need(state, "eps").as_double();
  loaded.*its.min_lrs = lowest_rates(state, (scheduler.*its.min_lrs).size());
  loaded.*its.patience = need(state, "patience").get<int>();
  loaded.*its.cooldown = need(state, "cooldown").get<int>();
  loaded.*its.cooldown_counter = need(state, "cooldown_counter").get<int>();
  loaded.*its.num_bad_epochs = need(state, "num_bad_epochs").get<int>();
  loaded.*its.last_epoch = need(state, "last_epoch").get<int>();
  loaded.*its.best = need(state, "best").get<float>();

  const auto take = [&](auto... fields) { ((scheduler.*fields = std::move(loaded.*fields)), ...); };
  take(its.mode, its.threshold_mode, its.factor, its.threshold, its.eps, its.min_lrs, its.patience, its.cooldown,
       its.cooldown_counter, its.num_bad_epochs, its.last_epoch, its.best);
}

}  // namespace trireme::torch
