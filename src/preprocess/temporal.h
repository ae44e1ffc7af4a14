#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "data/arrow_c.h"
#include "trireme/value.h"

// Dates, times and durations of columns, and their JSON, which is Python's: {"$date": "2026-01-02"},
// {"$datetime": "2026-01-02T03:04:05.000006"}, {"$time": "03:04:05"}, {"$timedelta": [days, seconds, microseconds]}.

namespace trireme::preprocess {

// Independent of the unit of the column.
struct Temporal {
  enum class Kind : char { kDate, kDatetime, kInstant, kTime, kDuration };  // kInstant: a datetime with a time zone

  Kind kind = Kind::kDate;
  std::int64_t seconds = 0;  // since 1970, midnight, or nothing
  std::int32_t nanos = 0;    // 0 or more

  auto operator<=>(const Temporal&) const = default;
};

// By Arrow format; nothing for other types.
std::optional<Temporal::Kind> temporal_kind(std::string_view format);
// The width of a stored value.
std::int64_t temporal_width(std::string_view format);

Temporal temporal_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index);
std::optional<Temporal> parse_temporal(const Value& value);
// The error names values that Python has no type for: years after 9999, or fractions of a microsecond.
base::Result<Value> temporal_value(const Temporal& temporal);
// The stored number in a column of that format, if it is exact.
std::optional<std::int64_t> temporal_number(std::string_view format, const Temporal& temporal);
// The format of a column of such values.
std::string_view temporal_format(const Temporal& temporal);

}  // namespace trireme::preprocess
