#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "trireme/value.h"

// Values as JSON text (files, logs, the command line) and as MessagePack (the wire).
//
// JSON has no NaN, infinity or bytes. They are written as {"$float": "nan"}, {"$float": "inf"}, {"$float": "-inf"} and
// {"$bytes": "<hex>"}, so that every JSON reader can read our files and nothing is lost on the way back.

namespace trireme::base {

std::string to_json(const Value& value);
std::string to_pretty_json(const Value& value);
void append_json(std::string& out, const Value& value);
void append_json(std::string& out, const Dict& dict);

Result<Value> parse_json(std::string_view text);
// As it is written: {"$float": "nan"} is a dict.
Result<Value> parse_plain_json(std::string_view text);
// As parse_json, and anything but an object is an error.
Result<Dict> parse_json_dict(std::string_view text);

std::string to_msgpack(const Value& value);
// Nesting beyond kMaxDepth is refused: the text may come from a stranger.
Result<Value> parse_msgpack(std::string_view bytes);

inline constexpr int kMaxDepth = 64;

}  // namespace trireme::base
