#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "data/arrow_c.h"
#include "trireme/value.h"

// Dates and times in columns, as in Python's JSON: {"$date": "2026-01-02"} and
// {"$datetime": "2026-01-02T03:04:05.000006"}.

namespace trireme::api::preprocessing {

// A date, or a time without a zone that Python supports: in seconds, milliseconds or microseconds.
bool is_date(std::string_view format);
bool is_date(const Value& value);
// "$date" or "$datetime".
std::string_view date_kind(std::string_view format);

std::string date_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index);
// The stored value in a column of that type; nothing if it is not such a date.
std::optional<std::int64_t> date_number(std::string_view format, const Value& value);

}  // namespace trireme::api::preprocessing
