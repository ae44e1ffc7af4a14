#include "api/data_rate.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/dict_fields.h"

namespace trireme::api {
namespace {

// There may be thousands of reports; rates over such short times would only flicker.
constexpr double kLeastSeconds = 0.5;

std::string short_number(double number) {
  if (number >= 1e6) return fmt::format("{:.1f}M", number / 1e6);
  if (number >= 1e4) return fmt::format("{:.0f}k", number / 1e3);
  return fmt::format("{:.0f}", number);
}

}  // namespace

void DataRate::count(const Dict& event) {
  if (base::text_of(event, "event") != "report" || base::int_of(event, "rank") != 0) return;
  const Dict* data = base::dict_of(event, "data");
  if (!data) return;
  const double time = base::number_of(event, "time", 0);
  const double rows = base::number_of(*data, "rows", 0);
  const double bytes = base::number_of(*data, "bytes", 0);
  const double wait_s = base::number_of(*data, "wait_s", 0);
  const double seconds = time - time_;
  const std::int64_t attempt = base::int_of(event, "attempt");
  const bool another_attempt = attempt != attempt_;  // counts from 0 again
  if (time_ > 0 && !another_attempt && seconds < kLeastSeconds) return;
  if (time_ > 0 && !another_attempt) {
    text_ = fmt::format("{} rows/s  {:.3g} MB/s  waited {:.0f} %", short_number((rows - rows_) / seconds),
                        (bytes - bytes_) / seconds / 1e6, std::clamp((wait_s - wait_s_) / seconds, 0.0, 1.0) * 100);
  }
  attempt_ = attempt;
  time_ = time;
  rows_ = rows;
  bytes_ = bytes;
  wait_s_ = wait_s;
}

}  // namespace trireme::api
