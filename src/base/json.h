#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "trireme/value.h"

// Values as JSON text (files, logs, the command line) and as MessagePack (the wire).
//
// JSON has no NaN, infinity or bytes. They are written as {"$float": "nan"}, {"$float": "inf"}, {"$float": "-inf"} and
// {"$bytes": "<hex>"}, so that any JSON reader can read our files and no value is lost in a round trip.

namespace trireme::base {

std::string to_json(const Value& value);
std::string to_pretty_json(const Value& value);
void append_json(std::string& out, const Value& value);
void append_json(std::string& out, const Dict& dict);

Result<Value> parse_json(std::string_view text);
// Without decoding: {"$float": "nan"} stays a dict.
Result<Value> parse_plain_json(std::string_view text);
// Like parse_json, but anything other than an object is an error.
Result<Dict> parse_json_dict(std::string_view text);

std::string to_msgpack(const Value& value);
// Rejects nesting deeper than kMaxDepth: the input may be from an unauthenticated peer.
Result<Value> parse_msgpack(std::string_view bytes);

inline constexpr int kMaxDepth = 64;

}  // namespace trireme::base
