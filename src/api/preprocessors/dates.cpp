#include "api/preprocessors/dates.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>

#include "data/unaligned.h"

namespace trireme::api::preprocessing {
namespace {

constexpr std::int64_t kDay = 86400;
constexpr std::int64_t kMicros = 1000000;

// Stored units per second.
std::int64_t units(std::string_view format) {
  if (format == "tdm" || format == "tsm:") return 1000;
  return format == "tsu:" ? kMicros : 1;
}

std::int64_t floor_divided(std::int64_t value, std::int64_t by) { return value / by - (value % by < 0 ? 1 : 0); }

std::string day_text(std::int64_t days) {
  const std::chrono::year_month_day day{std::chrono::sys_days{std::chrono::days{days}}};
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(day.year()), static_cast<unsigned>(day.month()),
                     static_cast<unsigned>(day.day()));
}

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

// "T03:04:05.000006", in microseconds.
std::optional<std::int64_t> micros_in(std::string_view text) {
  if (!text.starts_with('T')) return std::nullopt;
  text.remove_prefix(1);
  const auto hours = digits(text, 2, ":");
  const auto minutes = hours ? digits(text, 2, ":") : std::nullopt;
  const auto seconds = minutes ? digits(text, 2) : std::nullopt;
  if (!seconds || *hours > 23 || *minutes > 59 || *seconds > 59) return std::nullopt;
  const std::int64_t micros = ((*hours * 60 + *minutes) * 60 + *seconds) * kMicros;
  if (text.empty()) return micros;
  if (!text.starts_with('.')) return std::nullopt;
  text.remove_prefix(1);
  const auto parts = digits(text, 6);
  if (!parts || !text.empty()) return std::nullopt;
  return micros + *parts;
}

}  // namespace

bool is_date(std::string_view format) {
  return format == "tdD" || format == "tdm" || format == "tss:" || format == "tsm:" || format == "tsu:";
}

bool is_date(const Value& value) {
  const auto* dict = value.get_if<Dict>();
  if (!dict || dict->size() != 1 || !dict->begin()->second.get_if<std::string>()) return false;
  return dict->begin()->first == "$date" || dict->begin()->first == "$datetime";
}

std::string_view date_kind(std::string_view format) { return format.starts_with("td") ? "$date" : "$datetime"; }

std::string date_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
  const std::string_view format = type.format;
  const std::int64_t row = index + array.offset;
  if (format == "tdD") return day_text(data::load<std::int32_t>(array.buffers[1], row));
  const auto stored = data::load<std::int64_t>(array.buffers[1], row);
  const std::int64_t days = floor_divided(stored, kDay * units(format));
  if (format == "tdm") return day_text(days);
  const std::int64_t micros = (stored - days * kDay * units(format)) * (kMicros / units(format));
  const std::int64_t seconds = micros / kMicros;
  std::string text =
      day_text(days) + fmt::format("T{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
  if (micros % kMicros != 0) text += fmt::format(".{:06}", micros % kMicros);
  return text;
}

std::optional<std::int64_t> date_number(std::string_view format, const Value& value) {
  if (!is_date(value) || value.as_dict().begin()->first != date_kind(format)) return std::nullopt;
  std::string_view text = value.as_dict().begin()->second.as_string();
  const auto days = days_in(text);
  if (!days) return std::nullopt;
  if (format == "tdD" && text.empty()) return days;
  if (format == "tdm" && text.empty()) return *days * kDay * units(format);
  if (format.starts_with("td")) return std::nullopt;
  const auto micros = micros_in(text);
  if (!micros) return std::nullopt;
  return *days * kDay * units(format) + *micros / (kMicros / units(format));
}

}  // namespace trireme::api::preprocessing
