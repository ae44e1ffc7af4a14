#include "preprocess/temporal.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>

#include "data/unaligned.h"

namespace trireme::preprocess {
namespace {

using Kind = Temporal::Kind;

constexpr std::int64_t kDay = 86400;
constexpr std::int64_t kNanos = 1000000000;

// Stored units per second; dates in days have none.
std::int64_t units_per_second(std::string_view format) {
  switch (format[2]) {
    case 'm': return 1000;
    case 'u': return 1000000;
    case 'n': return kNanos;
    default: return 1;
  }
}

std::int64_t floor_divided(std::int64_t value, std::int64_t by) { return value / by - (value % by < 0 ? 1 : 0); }

// This number of digits, followed by `after`.
std::optional<int> digits(std::string_view& text, std::size_t count, std::string_view after = "") {
  int value = 0;
  if (text.size() < count + after.size() || text.substr(count, after.size()) != after) return std::nullopt;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + count, value);
  if (failure != std::errc{} || end != text.data() + count || value < 0) return std::nullopt;
  text.remove_prefix(count + after.size());
  return value;
}

std::optional<std::int64_t> days_in(std::string_view& text) {
  const auto year = digits(text, 4, "-");
  const auto month = year ? digits(text, 2, "-") : std::nullopt;
  const auto day = month ? digits(text, 2) : std::nullopt;
  if (!day) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return std::nullopt;
  return std::chrono::sys_days(date).time_since_epoch().count();
}

// "03:04:05", "03:04:05.000006" or with nine digits.
bool read_clock(std::string_view& text, Temporal& to) {
  const auto hours = digits(text, 2, ":");
  const auto minutes = hours ? digits(text, 2, ":") : std::nullopt;
  const auto seconds = minutes ? digits(text, 2) : std::nullopt;
  if (!seconds || *hours > 23 || *minutes > 59 || *seconds > 59) return false;
  to.seconds += (*hours * 60 + *minutes) * 60 + *seconds;
  if (!text.starts_with('.')) return true;
  text.remove_prefix(1);
  const auto micros = digits(text, 6);
  if (!micros) return false;
  const auto rest = text.empty() || text[0] < '0' || text[0] > '9' ? std::optional(0) : digits(text, 3);
  if (!rest) return false;
  to.nanos = *micros * 1000 + *rest;
  return true;
}

// "+02:00", "-05:30", "Z" or nothing.
bool read_offset(std::string_view text, Temporal& to) {
  if (text.empty()) return true;
  to.kind = Kind::kInstant;
  if (text == "Z") return true;
  const char sign = text[0];
  if (sign != '+' && sign != '-') return false;
  text.remove_prefix(1);
  const auto hours = digits(text, 2, ":");
  const auto minutes = hours ? digits(text, 2) : std::nullopt;
  if (!minutes || !text.empty()) return false;
  const int offset = (*hours * 60 + *minutes) * 60;
  to.seconds -= sign == '+' ? offset : -offset;
  return true;
}

std::optional<Temporal> parse_text(std::string_view tag, std::string_view text) {
  Temporal found;
  if (tag == "$time") {
    found.kind = Kind::kTime;
    return read_clock(text, found) && text.empty() ? std::optional(found) : std::nullopt;
  }
  const auto days = days_in(text);
  if (!days) return std::nullopt;
  found.seconds = *days * kDay;
  if (tag == "$date") return text.empty() ? std::optional(found) : std::nullopt;
  found.kind = Kind::kDatetime;
  if (tag != "$datetime" || !text.starts_with('T')) return std::nullopt;
  text.remove_prefix(1);
  return read_clock(text, found) && read_offset(text, found) ? std::optional(found) : std::nullopt;
}

std::optional<Temporal> parse_duration(const List& parts) {
  constexpr std::int64_t kMost = 1000000000;  // days in Python's largest timedelta
  if (parts.size() != 3) return std::nullopt;
  std::int64_t numbers[3];
  for (std::size_t i = 0; i < 3; ++i) {
    const auto* whole = parts[i].get_if<std::int64_t>();
    if (!whole || *whole > kMost || *whole < -kMost) return std::nullopt;
    numbers[i] = *whole;
  }
  if (numbers[2] < 0 || numbers[2] >= 1000000) return std::nullopt;
  return Temporal{Kind::kDuration, numbers[0] * kDay + numbers[1], static_cast<std::int32_t>(numbers[2] * 1000)};
}

std::string clock_text(std::int64_t seconds, std::int32_t nanos) {
  std::string text = fmt::format("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
  if (nanos % 1000 != 0) text += fmt::format(".{:09}", nanos);
  else if (nanos != 0) text += fmt::format(".{:06}", nanos / 1000);
  return text;
}

}  // namespace

std::optional<Kind> temporal_kind(std::string_view format) {
  if (format.starts_with("td")) return Kind::kDate;
  if (format.starts_with("tt")) return Kind::kTime;
  if (format.starts_with("tD")) return Kind::kDuration;
  if (!format.starts_with("ts")) return std::nullopt;
  return format.size() > 4 ? Kind::kInstant : Kind::kDatetime;
}

std::int64_t temporal_width(std::string_view format) {
  return format == "tdD" || format == "tts" || format == "ttm" ? 4 : 8;
}

Temporal temporal_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
  const std::string_view format = type.format;
  const std::int64_t row = index + array.offset;
  const void* values = array.buffers[1];
  const std::int64_t stored =
      temporal_width(format) == 4 ? data::load<std::int32_t>(values, row) : data::load<std::int64_t>(values, row);
  const Kind kind = *temporal_kind(format);
  if (format == "tdD") return {kind, stored * kDay, 0};
  const std::int64_t units = units_per_second(format);
  const std::int64_t seconds = floor_divided(stored, units);
  if (kind == Kind::kDate) return {kind, floor_divided(seconds, kDay) * kDay, 0};
  return {kind, seconds, static_cast<std::int32_t>((stored - seconds * units) * (kNanos / units))};
}

std::optional<Temporal> parse_temporal(const Value& value) {
  const auto* dict = value.get_if<Dict>();
  if (!dict || dict->size() != 1) return std::nullopt;
  const auto& [tag, content] = *dict->begin();
  if (const auto* text = content.get_if<std::string>()) return parse_text(tag, *text);
  const auto* parts = content.get_if<List>();
  return tag == "$timedelta" && parts ? parse_duration(*parts) : std::nullopt;
}

base::Result<Value> temporal_value(const Temporal& temporal) {
  const std::int64_t days = floor_divided(temporal.seconds, kDay);
  const std::int64_t clock = temporal.seconds - days * kDay;
  const bool finer = temporal.nanos % 1000 != 0;
  if (temporal.kind == Kind::kDuration) {
    if (finer) return base::error("a duration has a fraction of a microsecond: cast the column to microseconds");
    return Value(Dict{{"$timedelta", List{days, clock, temporal.nanos / 1000}}});
  }
  if (temporal.kind == Kind::kTime) {
    if (finer) return base::error("a time has a fraction of a microsecond: cast the column to microseconds");
    return Value(Dict{{"$time", clock_text(clock, temporal.nanos)}});
  }
  constexpr std::int64_t kFirstDay = -719162;  // 0001-01-01
  constexpr std::int64_t kLastDay = 2932896;   // 9999-12-31
  if (days < kFirstDay || days > kLastDay) return base::error("a date is outside the years 1 to 9999");
  const std::chrono::year_month_day day{std::chrono::sys_days{std::chrono::days{days}}};
  std::string text = fmt::format("{:04}-{:02}-{:02}", static_cast<int>(day.year()), static_cast<unsigned>(day.month()),
                                 static_cast<unsigned>(day.day()));
  if (temporal.kind == Kind::kDate) return Value(Dict{{"$date", std::move(text)}});
  text += "T" + clock_text(clock, temporal.nanos) + (temporal.kind == Kind::kInstant ? "+00:00" : "");
  return Value(Dict{{"$datetime", std::move(text)}});
}

std::optional<std::int64_t> temporal_number(std::string_view format, const Temporal& temporal) {
  if (temporal_kind(format) != temporal.kind) return std::nullopt;
  if (format == "tdD") return temporal.seconds / kDay;
  const std::int64_t units = units_per_second(format);
  std::int64_t number = 0;
  if (temporal.nanos % (kNanos / units) != 0) return std::nullopt;
  if (__builtin_mul_overflow(temporal.seconds, units, &number)) return std::nullopt;
  if (__builtin_add_overflow(number, temporal.nanos / (kNanos / units), &number)) return std::nullopt;
  return number;
}

std::string_view temporal_format(const Temporal& temporal) {
  const bool finer = temporal.nanos % 1000 != 0;
  switch (temporal.kind) {
    case Kind::kDate: return "tdD";
    case Kind::kDatetime: return finer ? "tsn:" : "tsu:";
    case Kind::kInstant: return finer ? "tsn:UTC" : "tsu:UTC";
    case Kind::kTime: return "ttu";
    default: return "tDu";
  }
}

}  // namespace trireme::preprocess
