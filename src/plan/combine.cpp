#include <algorithm>
#include <chrono>

#include "plan/plan.h"
#include "plan/read.h"
#include "plan/record.h"
#include "plan/relational.h"

// Plans that combine other plans or data in memory.

namespace trireme::plan {
namespace {

class MemoryPlan : public Plan {
 public:
  MemoryPlan(std::string name, std::vector<data::Batch> batches)
      : batches_(std::move(batches)), name_(std::move(name)) {}

  std::string name() const override { return name_; }

  base::Result<data::Opened> open(std::size_t fragment, std::int64_t, std::int64_t) override {
    return data::Opened{stream_of({batches_[fragment]}), 0};
  }

 protected:
  base::Result<std::vector<DataFragment>> list() override {
    std::vector<DataFragment> fragments;
    for (const auto& batch : batches_) {
      fragments.push_back({fmt::format("{}, part {}", name_, fragments.size()), batch.rows(), batch.bytes()});
    }
    return fragments;
  }

  std::vector<data::Batch> batches_;

 private:
  std::string name_;
};

// The rows of pieces, in order.
class PiecesProducer final : public ArrayProducer {
 public:
  PiecesProducer(std::shared_ptr<Plan> input, std::vector<data::FragmentSlice> pieces)
      : plan_(std::move(input)), pieces_(std::move(pieces)) {}

  base::Result<OwnedSchema> schema() override {
    TRIREME_TRY(begin());
    return input_->schema()->exported();
  }

  base::Result<OwnedArray> next() override {
    TRIREME_TRY(begin());
    while (taken_ == pieces_[piece_].count) {
      if (piece_ + 1 == pieces_.size()) return OwnedArray();
      ++piece_;
      taken_ = 0;
      input_.reset();
      TRIREME_TRY(begin());
    }
    auto batch = input_->next(std::min(pieces_[piece_].count - taken_, kRowsAtOnce));
    may_pass_ = input_->may_pass();
    if (!batch) return std::move(batch).error();
    if (batch->rows() == 0) {
      return base::error("a fragment ended after {} of its rows", pieces_[piece_].row + taken_);
    }
    taken_ += batch->rows();
    return batch->exported().array;
  }

  bool may_pass() const override { return may_pass_; }

 private:
  static constexpr std::int64_t kRowsAtOnce = 65536;

  base::Result<void> begin() {
    if (input_) return {};
    const auto& piece = pieces_[piece_];
    TRIREME_ASSIGN(input_, Input::open(*plan_, piece.fragment, piece.row, piece.row + piece.count));
    if (!columns_) columns_ = input_->schema();
    return check_not_widened(*columns_, *input_->schema());
  }

  std::shared_ptr<Plan> plan_;  // shared with the plan of the slice
  std::vector<data::FragmentSlice> pieces_;
  std::size_t piece_ = 0;
  std::int64_t taken_ = 0;  // of the piece
  std::unique_ptr<Input> input_;
  std::shared_ptr<const data::Schema> columns_;  // of the stream
  bool may_pass_ = false;
};

class CutPlan final : public Plan {
 public:
  CutPlan(std::shared_ptr<Plan> input, std::string name, Cut cut)
      : input_(std::move(input)), name_(std::move(name)), cut_(std::move(cut)) {}

  std::string name() const override { return input_->name() + "." + name_; }
  std::vector<std::shared_ptr<Plan>> inputs() const override { return {input_}; }
  base::Result<std::shared_ptr<const data::Schema>> schema() override { return input_->schema(); }

  base::Result<data::Opened> open(std::size_t fragment, std::int64_t row, std::int64_t end) override {
    std::vector<data::FragmentSlice> pieces;
    std::int64_t first = 0;  // of the piece, in the complete plan
    for (const auto& piece : pieces_[fragment]) {
      const std::int64_t begins = std::max(row - first, std::int64_t{0});
      const std::int64_t ends = std::min(end - first, piece.count);
      if (begins < ends) pieces.push_back({piece.fragment, piece.row + begins, ends - begins});
      first += piece.count;
    }
    if (pieces.empty()) {
      TRIREME_ASSIGN(auto columns, input_->schema());
      return data::Opened{stream_of({data::Batch::empty(std::move(columns))}), 0};
    }
    return data::Opened{make_stream(std::make_unique<PiecesProducer>(input_, std::move(pieces))), row};
  }

 protected:
  base::Result<std::vector<DataFragment>> list() override {
    TRIREME_ASSIGN(const auto whole, input_->counted());
    TRIREME_ASSIGN(pieces_, cut_(whole));
    std::vector<DataFragment> fragments;
    for (const auto& pieces : pieces_) {
      DataFragment made{pieces.empty() ? "nothing" : whole[pieces.front().fragment].name, 0, 0};
      const auto& front = pieces.empty() ? data::FragmentSlice{} : pieces.front();
      if (pieces.size() != 1 || front.count != whole[front.fragment].rows)
        made.name += fmt::format(" from row {}", front.row);
      for (const auto& piece : pieces) {
        const auto& part = whole[piece.fragment];
        *made.rows += piece.count;
        made.bytes += part.rows > 0 ? part.bytes / part.rows * piece.count : 0;
      }
      fragments.push_back(std::move(made));
    }
    return fragments;
  }

 private:
  std::shared_ptr<Plan> input_;  // shared with the sliced dataset
  std::string name_;
  Cut cut_;
  std::vector<std::vector<data::FragmentSlice>> pieces_;  // by fragment, once listed
};

class UnionPlan final : public Plan {
 public:
  explicit UnionPlan(std::vector<std::shared_ptr<Plan>> inputs) : inputs_(std::move(inputs)) {}

  std::string name() const override { return inputs_.front()->name() + ".union_with(...)"; }
  std::vector<std::shared_ptr<Plan>> inputs() const override { return inputs_; }

  base::Result<data::Opened> open(std::size_t fragment, std::int64_t row, std::int64_t end) override {
    const auto& [input, index] = origin_[fragment];
    TRIREME_ASSIGN(const auto read, same_columns());
    return read[input]->open(index, row, end);
  }

 protected:
  base::Result<std::vector<DataFragment>> list() override {
    TRIREME_TRY(same_columns());
    std::vector<DataFragment> all;
    for (std::size_t input = 0; input < inputs_.size(); ++input) {
      // Counted there, so only once for all users of that plan.
      TRIREME_ASSIGN(const auto fragments, inputs_[input]->counted());
      for (std::size_t index = 0; index < fragments.size(); ++index) {
        all.push_back({fragments[index].name, fragments[index].rows, fragments[index].bytes});
        origin_.emplace_back(input, index);
      }
    }
    return all;
  }

 private:
  // The inputs with the columns of all.
  base::Result<std::vector<std::shared_ptr<Plan>>> same_columns() {
    std::lock_guard lock(mutex_);
    const std::int64_t now = revision();
    if (!read_.empty() && now == revision_) return read_;
    TRIREME_ASSIGN(read_, unified(inputs_));
    revision_ = now;
    return read_;
  }

  std::vector<std::shared_ptr<Plan>> inputs_;  // shared with the combined datasets
  std::mutex mutex_;
  std::vector<std::shared_ptr<Plan>> read_;  // once listed
  std::int64_t revision_ = 0;                // of the inputs, at read_
  std::vector<std::pair<std::size_t, std::size_t>> origin_;
};

class ShufflePlan final : public Plan {
 public:
  ShufflePlan(std::shared_ptr<Plan> input, Shuffle shuffle) : input_(std::move(input)), shuffle_(shuffle) {}

  std::string name() const override {
    return input_->name() + (shuffle_.rows ? ".random_shuffle()" : ".randomize_block_order()");
  }
  std::vector<std::shared_ptr<Plan>> inputs() const override { return {input_}; }
  std::optional<Shuffle> shuffle() const override { return shuffle_; }
  base::Result<std::shared_ptr<const data::Schema>> schema() override { return input_->schema(); }
  base::Result<data::Opened> open(std::size_t fragment, std::int64_t row, std::int64_t end) override {
    return input_->open(fragment, row, end);
  }

 protected:
  base::Result<std::vector<DataFragment>> list() override { return input_->fragments(); }

 private:
  std::shared_ptr<Plan> input_;  // shared with the shuffled dataset
  Shuffle shuffle_;
};

// Read into memory on first use.
class SettledPlan final : public MemoryPlan {
 public:
  explicit SettledPlan(const std::shared_ptr<Plan>& input) : MemoryPlan(input->name(), {}), input_(input) {}

  Work work() const override { return {}; }  // already done
  std::vector<std::shared_ptr<Plan>> inputs() const override { return {input_}; }
  base::Result<std::shared_ptr<const data::Schema>> schema() override {
    // A function's types may become wider while it is read.
    if (input_->work().costly) TRIREME_TRY(fragments());
    TRIREME_ASSIGN(auto columns, input_->schema());
    // The batches have the values of dictionaries.
    return data::Schema::take(data::Batch::empty(std::move(columns)).exported().schema);
  }

 protected:
  base::Result<std::vector<DataFragment>> list() override {
    TRIREME_ASSIGN(batches_, read_all(input_, kRowsInMemory));
    return MemoryPlan::list();
  }

 private:
  std::shared_ptr<Plan> input_;  // shared with the shuffled dataset
};

}  // namespace

base::Result<std::vector<std::shared_ptr<Plan>>> unified(std::vector<std::shared_ptr<Plan>> plans) {
  std::vector<std::shared_ptr<const data::Schema>> schemas;
  base::Result<void> same;
  for (const auto& plan : plans) {
    TRIREME_ASSIGN(auto columns, plan->schema());
    schemas.push_back(std::move(columns));
    if (!same) continue;
    same = schemas.back()->check_same(*schemas.front());
    if (!same)
      same = std::move(same).error().wrap(fmt::format("{} does not match {}", plan->name(), plans.front()->name()));
  }
  if (same) return plans;
  auto library = relational(same.error().message() + ": to unify them, union_with()");
  if (!library) return std::move(library).error();
  std::vector<ArrowSchema> given;
  for (const auto& each : schemas) given.push_back(each->exported().give());
  // Exception boundary: the library's functions throw.
  try {
    OwnedSchema common;
    (*library)->unify(given, &*common);
    TRIREME_ASSIGN(const auto columns, data::Schema::take(std::move(common)));
    for (auto& plan : plans) {
      ArrowSchema c_schema = columns->exported().give();
      plan = stream_plan(std::move(plan), (*library)->conform(&c_schema));
    }
  } catch (const std::exception& thrown) {
    return base::error("{}: {}", same.error().message(), thrown.what());
  }
  return plans;
}

std::shared_ptr<Plan> memory_plan(std::string name, std::vector<data::Batch> batches) {
  return std::make_shared<MemoryPlan>(std::move(name), std::move(batches));
}

std::shared_ptr<Plan> cut_plan(std::shared_ptr<Plan> input, std::string name, Cut cut) {
  return std::make_shared<CutPlan>(settled_plan(std::move(input)), std::move(name), std::move(cut));
}

std::shared_ptr<Plan> union_plan(std::vector<std::shared_ptr<Plan>> inputs) {
  for (auto& input : inputs) input = settled_plan(std::move(input));
  return std::make_shared<UnionPlan>(std::move(inputs));
}

std::shared_ptr<Plan> shuffle_plan(std::shared_ptr<Plan> input, Shuffle shuffle) {
  return std::make_shared<ShufflePlan>(std::move(input), shuffle);
}

std::shared_ptr<Plan> settled_plan(std::shared_ptr<Plan> input) {
  if (!input->shuffle()) return input;
  return std::make_shared<SettledPlan>(std::move(input));
}

}  // namespace trireme::plan
