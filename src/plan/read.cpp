#include "plan/read.h"

#include <chrono>

#include "data/shard_plan.h"

namespace trireme::plan {
namespace {

constexpr std::chrono::duration<double> kLong{3600};

// Batches of a pass, as a stream.
class PassProducer final : public ArrayProducer {
 public:
  PassProducer(std::shared_ptr<const data::Schema> columns, std::shared_ptr<data::Shard> shard,
               std::unique_ptr<data::Pass> pass)
      : columns_(std::move(columns)), shard_(std::move(shard)), pass_(std::move(pass)) {}

  base::Result<OwnedSchema> schema() override { return columns_->exported(); }

  base::Result<OwnedArray> next() override {
    if (!pass_) return OwnedArray();
    TRIREME_ASSIGN(auto next, pass_->next(kLong));
    if (!next.batch) return OwnedArray();
    TRIREME_TRY(check_not_widened(*columns_, *next.batch->schema()));
    return next.batch->exported().array;
  }

 private:
  std::shared_ptr<const data::Schema> columns_;
  std::shared_ptr<data::Shard> shard_;  // shared with the pass
  std::unique_ptr<data::Pass> pass_;    // null if there are no rows
};

// The fragments of a plan, one after the other.
class OrderedProducer final : public ArrayProducer {
 public:
  OrderedProducer(std::shared_ptr<Plan> plan, std::shared_ptr<const data::Schema> columns, std::size_t fragments)
      : plan_(std::move(plan)), columns_(std::move(columns)), fragments_(fragments) {}

  base::Result<OwnedSchema> schema() override { return columns_->exported(); }

  base::Result<OwnedArray> next() override {
    while (input_ || fragment_ < fragments_) {
      if (!input_) {
        TRIREME_ASSIGN(input_, Input::open(*plan_, fragment_++, 0));
        TRIREME_TRY(check_not_widened(*columns_, *input_->schema()));
      }
      TRIREME_ASSIGN(const auto batch, input_->next(0));
      if (batch.rows() > 0) return batch.exported().array;
      input_.reset();
    }
    return OwnedArray();
  }

 private:
  std::shared_ptr<Plan> plan_;  // shared with the dataset
  std::shared_ptr<const data::Schema> columns_;
  std::size_t fragments_;
  std::size_t fragment_ = 0;  // the next one
  std::unique_ptr<Input> input_;
};

}  // namespace

data::Ordering ordering_of(const Plan& plan, std::uint64_t standard_seed) {
  data::Ordering ordering;
  ordering.seed = standard_seed;
  const Work work = plan.work();
  // Operations that change the number of rows must see all previous rows of the fragment.
  ordering.costly_rows = work.costly && work.keeps_rows;
  ordering.made_together = work.made_together;
  const auto shuffle = plan.shuffle();
  if (!shuffle) return ordering;
  ordering.shuffle_fragments = true;
  ordering.shuffle_rows = shuffle->rows;
  ordering.window_rows = shuffle->window_rows;
  if (shuffle->seed) ordering.seed = data::seed_of(*shuffle->seed);
  return ordering;
}

base::Result<std::shared_ptr<data::Shard>> make_shard(const std::shared_ptr<Plan>& plan, const data::Ordering& ordering,
                                                      data::ShardOptions options) {
  data::Table table;
  TRIREME_ASSIGN(table.fragments, plan->counted());
  table.source = source_of(plan);
  table.layout = data::lay_out(table.fragments, ordering);
  options.decoding_bytes = plan->decoding_bytes();
  options.remote = plan->remote();
  return data::Shard::make(std::move(table), std::move(options));
}

base::Result<std::shared_ptr<data::Shard>> whole_shard(const std::shared_ptr<Plan>& plan) {
  auto ordering = ordering_of(*plan, 0);
  ordering.virtual_shards = 1;
  return make_shard(plan, ordering, {});
}

namespace {

base::Result<std::vector<data::Batch>> read_once(const std::shared_ptr<Plan>& plan, std::int64_t batch_rows) {
  std::vector<data::Batch> batches;
  TRIREME_ASSIGN(const auto shard, whole_shard(plan));
  if (shard->rows() == 0) {
    TRIREME_ASSIGN(auto columns, plan->schema());
    batches.push_back(data::Batch::empty(std::move(columns)));
    return batches;
  }
  TRIREME_ASSIGN(auto pass, shard->iterate({.batch_size = batch_rows}));
  while (true) {
    TRIREME_ASSIGN(auto next, pass->next(kLong));
    if (next.state == data::Next::State::kEnd) return batches;
    if (next.batch) batches.push_back(*std::move(next.batch));
  }
}

}  // namespace

base::Result<std::vector<data::Batch>> read_all(const std::shared_ptr<Plan>& plan, std::int64_t batch_rows) {
  return with_widest_types(*plan, [&] { return read_once(plan, batch_rows); });
}

base::Result<OwnedStream> whole_stream(const std::shared_ptr<Plan>& plan) {
  TRIREME_ASSIGN(auto columns, plan->schema());
  TRIREME_ASSIGN(auto shard, whole_shard(plan));
  std::unique_ptr<data::Pass> pass;
  if (shard->rows() > 0) {
    TRIREME_ASSIGN(pass, shard->iterate({.batch_size = kRowsInMemory}));
  }
  return make_stream(std::make_unique<PassProducer>(std::move(columns), std::move(shard), std::move(pass)));
}

base::Result<OwnedStream> ordered_stream(std::shared_ptr<Plan> plan) {
  TRIREME_ASSIGN(auto columns, plan->schema());
  TRIREME_ASSIGN(const auto fragments, plan->fragments());
  return make_stream(std::make_unique<OrderedProducer>(std::move(plan), std::move(columns), fragments.size()));
}

}  // namespace trireme::plan
