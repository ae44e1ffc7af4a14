#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "base/text.h"
#include "formats/tf_example.h"

// The wire format of tf.train.Example: nested fields of a number and a value.

namespace trireme::formats::tf_wire {

base::Error broken(std::string_view why);

// Iterates over the fields of a message.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  struct Field {
    std::uint64_t number = 0;
    int wire = 0;
    std::uint64_t varint = 0;
    std::string_view bytes;
  };

  // False at the end, or if the message is invalid: see why().
  bool next(Field& field) {
    if (rest_.empty()) return false;
    std::uint64_t key = 0;
    if (!varint(key)) return false;
    field.number = key >> 3;
    field.wire = static_cast<int>(key & 7);
    std::uint64_t size = 0;
    switch (field.wire) {
      case 0: return varint(field.varint);
      case 1: size = 8; break;
      case 5: size = 4; break;
      case 2:
        if (!varint(size)) return false;
        break;
      default: return fail("unknown wire type");
    }
    if (size > rest_.size()) return fail("it is truncated");
    field.bytes = rest_.substr(0, static_cast<std::size_t>(size));
    rest_.remove_prefix(static_cast<std::size_t>(size));
    return true;
  }

  bool varint(std::uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (rest_.empty()) return fail("it is truncated");
      const auto byte = static_cast<std::uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return fail("unterminated varint");
  }

  bool at_end() const { return rest_.empty(); }
  std::string_view why() const { return why_; }
  base::Result<void> ended() const {
    if (why_.empty()) return {};
    return broken(why_);
  }

 private:
  bool fail(std::string_view why) {
    why_ = why;
    return false;
  }

  std::string_view rest_;
  std::string_view why_;
};

// Calls visit(name, kind, content of the list) for each feature; visit returns a Result.
template <typename Visit>
base::Result<void> for_each_feature(std::string_view example, Visit visit) {
  Fields outer(example);
  Fields::Field features;
  while (outer.next(features)) {
    if (features.number != 1) continue;
    if (features.wire != 2) return broken("its features are not a message");
    Fields entries(features.bytes);
    Fields::Field entry;
    while (entries.next(entry)) {
      if (entry.number != 1) continue;
      if (entry.wire != 2) return broken("a feature is not a message");
      std::string_view name;
      std::string_view feature;
      Fields parts(entry.bytes);
      Fields::Field part;
      while (parts.next(part)) {
        if (part.number != 1 && part.number != 2) continue;
        if (part.wire != 2) return broken("a feature has no name");
        (part.number == 1 ? name : feature) = part.bytes;
      }
      TRIREME_TRY(parts.ended());
      if (!base::is_utf8(name)) return broken("the name of a feature is not valid UTF-8");
      FeatureKind kind = FeatureKind::kNone;
      std::string_view content;
      Fields lists(feature);
      Fields::Field list;
      while (lists.next(list)) {
        if (list.number < 1 || list.number > 3) continue;
        if (list.wire != 2) return broken("a feature's values are not a message");
        kind = static_cast<FeatureKind>(list.number);
        content = list.bytes;
      }
      TRIREME_TRY(lists.ended());
      TRIREME_TRY(visit(name, kind, content));
    }
    TRIREME_TRY(entries.ended());
  }
  return outer.ended();
}

// Calls take(bytes) for each part of a list: a value, several packed values, or the 8 bytes of a single number.
template <typename Take>
base::Result<std::int64_t> for_each_value(FeatureKind kind, std::string_view list, Take take) {
  Fields fields(list);
  Fields::Field field;
  std::int64_t count = 0;
  while (fields.next(field)) {
    if (field.number != 1) continue;
    if (kind == FeatureKind::kInt && field.wire == 0) {
      take(std::string_view(reinterpret_cast<const char*>(&field.varint), sizeof field.varint));
      ++count;
    } else if (kind == FeatureKind::kInt && field.wire == 2) {
      Fields packed(field.bytes);
      std::uint64_t value = 0;
      while (!packed.at_end() && packed.varint(value)) {
        take(std::string_view(reinterpret_cast<const char*>(&value), sizeof value));
        ++count;
      }
      TRIREME_TRY(packed.ended());
    } else if (kind == FeatureKind::kFloat && (field.wire == 2 || field.wire == 5)) {
      if (field.bytes.size() % sizeof(float) != 0) return broken("its floats are not 4 bytes each");
      take(field.bytes);
      count += static_cast<std::int64_t>(field.bytes.size() / sizeof(float));
    } else if (kind == FeatureKind::kBytes && field.wire == 2) {
      take(field.bytes);
      ++count;
    } else {
      return broken("values of a different type than their list");
    }
  }
  TRIREME_TRY(fields.ended());
  return count;
}

}  // namespace trireme::formats::tf_wire
