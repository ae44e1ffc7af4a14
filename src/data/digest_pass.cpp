#include "data/digest_pass.h"

namespace trireme::data {

bool same_order(Layout a, Layout b) {
  const auto shuffles = [](const Layout& each) { return each.shuffle_fragments || each.window_rows > 1; };
  if (!shuffles(a) && !shuffles(b)) a.seed = b.seed = 0;
  return a == b;
}

std::string order_text(const Layout& layout) {
  return fmt::format("seed {}, {} virtual shards, windows of {} rows, fragments {}shuffled", layout.seed,
                     layout.virtual_shards, layout.window_rows, layout.shuffle_fragments ? "" : "not ");
}

std::string check_pass(const LoggedPass& pass, const PassStart& start, const Steps& steps, SampleOrder& order,
                       std::int64_t& end) {
  const int rank = pass.context.whole ? 0 : pass.context.rank;
  std::int64_t step = 0;
  for (const auto& line : pass.stretches) {
    if (line.span.begin != end) {
      return fmt::format("rank {} consumed rows {} to {} after row {}", pass.context.rank, line.span.begin,
                         line.span.end, end);
    }
    std::int64_t rows = 0;
    std::uint64_t digest = 0;
    for (; step < steps.count() && steps[step].end <= line.span.end; ++step) {
      const Span batch = steps[step];
      Span slots = own_slots(batch, rank, start.cutting.world, start.cutting.pad_to(batch));
      rows += slots.size();
      for (const auto& part :
           share(batch, order.virtual_shards(), rank, start.cutting.world, start.cutting.pad_to(batch))) {
        order.each(part, [&](std::int64_t sample) {
          if (slots.begin == slots.end) return;  // padding of the batch
          digest += row_digest(batch.begin + slots.begin++, sample);
        });
      }
      end = batch.end;
    }
    if (end != line.span.end) {
      return fmt::format("rank {} consumed rows {} to {}, but no batch ends there", pass.context.rank, line.span.begin,
                         line.span.end);
    }
    if (rows != line.rows) {
      return fmt::format("rows {} to {}: rank {} consumed {} of them, but its share is {}", line.span.begin,
                         line.span.end, pass.context.rank, line.rows, rows);
    }
    if (digest != line.digest) {
      return fmt::format("rows {} to {}: rank {} consumed the wrong rows, or in the wrong order", line.span.begin,
                         line.span.end, pass.context.rank);
    }
  }
  if (!pass.end) return "";
  if (pass.end->at != end) {
    return fmt::format("rank {} ended at row {}, but its last rows end before row {}", pass.context.rank, pass.end->at,
                       end);
  }
  if (pass.end->over && step != steps.count()) {
    return fmt::format("rank {} reports the end of the epoch at row {}, before its last batch", pass.context.rank, end);
  }
  return "";
}

std::string different_start(const LoggedPass& a, const LoggedPass& b) {
  const auto differ = [&](const char* what, auto first, auto second) {
    return fmt::format("rank {} began at {} {} and rank {} at {} {}", a.context.rank, what, first, b.context.rank, what,
                       second);
  };
  if (a.start.epoch != b.start.epoch) return differ("epoch", a.start.epoch, b.start.epoch);
  if (a.start.begin != b.start.begin) return differ("row", a.start.begin, b.start.begin);
  if (a.context.world != b.context.world) return "ranks disagree on the number of ranks";
  if (a.fragments != b.fragments) return "ranks read datasets with different fragments";
  if (!same_order(a.start.layout, b.start.layout)) {
    return fmt::format("rank {} has a different order ({}) than rank {} ({})", a.context.rank,
                       order_text(a.start.layout), b.context.rank, order_text(b.start.layout));
  }
  if (a.start.cutting != b.start.cutting) {
    return fmt::format(
        "rank {} and rank {} split the epoch differently: batches of {} and {} rows, or different options",
        a.context.rank, b.context.rank, a.start.cutting.batch_rows, b.start.cutting.batch_rows);
  }
  return "";
}

}  // namespace trireme::data
