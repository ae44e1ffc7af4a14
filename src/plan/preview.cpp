#include <algorithm>
#include <cstdio>
#include <limits>
#include <locale>

#include "base/json.h"
#include "base/text.h"
#include "plan/plan.h"
#include "plan/read.h"
#include "plan/rows.h"
#include "plan/selection.h"
#include "plan/value_or_throw.h"
#include "trireme/data.h"

// Previews of a dataset: its first rows and a summary.

namespace trireme {
namespace {

using plan::value_or_throw;

std::string line_of(const Dict& row) {
  Dict shown;
  for (const auto& [name, value] : row) {
    const auto* tensor = value.get_if<Tensor>();
    const auto* bytes = value.get_if<Bytes>();
    if (tensor) shown[name] = tensor->describe();
    else if (bytes) shown[name] = base::count_of(std::ssize(bytes->data), "byte");
    else shown[name] = value;
  }
  return base::to_json(shown);
}

// The first rows, in batches. Other rows are not counted: without a shuffle, the first fragments are
// sufficient.
std::vector<data::Batch> read_head(const std::shared_ptr<plan::Plan>& plan, std::int64_t rows) {
  std::vector<data::Batch> head;
  if (rows <= 0) return head;
  if (plan->shuffle()) {
    const auto shard = value_or_throw(plan::whole_shard(plan));
    if (shard->rows() == 0) return head;
    const std::int64_t all = std::min(rows, shard->rows());
    const auto pass = value_or_throw(shard->iterate({.batch_size = std::min(all, plan::kRowsInMemory)}));
    for (std::int64_t missing = all; missing > 0;) {
      const auto next = value_or_throw(pass->next(std::chrono::seconds(3600)));
      if (next.state == data::Next::State::kEnd) break;
      if (!next.batch) continue;
      head.push_back(value_or_throw(plan::first_rows(*next.batch, missing)));
      missing -= head.back().rows();
    }
    return head;
  }
  const auto fragments = value_or_throw(plan->fragments());
  for (std::size_t i = 0; i < fragments.size() && rows > 0; ++i) {
    const auto input = value_or_throw(plan::Input::open(*plan, i, 0));
    while (rows > 0) {
      auto batch = value_or_throw(input->next(std::min(rows, plan::kRowsInMemory)));
      if (batch.rows() == 0) break;
      rows -= batch.rows();
      head.push_back(std::move(batch));
    }
  }
  return head;
}

std::vector<data::Batch> head_of(const std::shared_ptr<plan::Plan>& plan, std::int64_t rows) {
  return plan::with_widest_types(*plan, [&] { return read_head(plan, rows); });
}

// "1,234,567".
std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<std::int64_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

// The chain of operations, from the source on.
std::vector<std::string> steps_of(const plan::Plan& plan) {
  const auto inputs = plan.inputs();
  const std::string name = plan.name();
  if (inputs.empty()) return {name};
  auto steps = steps_of(*inputs.front());
  const std::string before = inputs.front()->name() + ".";
  const bool shuffles = plan.shuffle() && !inputs.front()->shuffle();  // shown in a separate line
  if (name.starts_with(before) && !shuffles) steps.push_back(name.substr(before.size()));
  return steps;
}

}  // namespace

std::vector<Dict> Dataset::take(std::int64_t rows) const {
  std::vector<Dict> taken;
  for (const auto& batch : head_of(plan_, rows)) {
    auto here = value_or_throw(plan::rows_of(batch));
    taken.insert(taken.end(), std::make_move_iterator(here.begin()), std::make_move_iterator(here.end()));
  }
  return taken;
}

std::vector<Dict> Dataset::take_all() const { return take(std::numeric_limits<std::int64_t>::max()); }

Batch Dataset::take_batch(std::int64_t batch_size) const {
  if (batch_size < 1) throw ValueError(fmt::format("take_batch({}): expected a number of rows, 1 or more", batch_size));
  const auto head = head_of(plan_, batch_size);
  if (head.empty()) throw ValueError("take_batch: the dataset is empty");
  return plan::public_batch(value_or_throw(plan::joined(head)));
}

void Dataset::show(std::int64_t rows) const {
  for (const auto& row : take(rows)) std::printf("%s\n", line_of(row).c_str());
}

std::string Dataset::stats() const {
  const auto fragments = value_or_throw(plan_->fragments());
  std::int64_t rows = 0;
  bool counted = true;
  for (const auto& each : fragments) {
    counted = counted && each.rows;
    rows += each.rows.value_or(0);
  }
  std::string text =
      fmt::format("{}\n{}, {}", base::join(steps_of(*plan_), " -> "), base::count_of(std::ssize(fragments), "fragment"),
                  counted ? grouped(rows) + (rows == 1 ? " row" : " rows") : "rows not counted");
  if (const auto shuffle = plan_->shuffle()) {
    text += fmt::format("\nshuffled: {}, seed {}", shuffle->rows ? "rows" : "fragments",
                        shuffle->seed ? std::to_string(*shuffle->seed) : "not set");
  }
  return text;
}

}  // namespace trireme
