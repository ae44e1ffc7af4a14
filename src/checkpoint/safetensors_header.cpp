#include "checkpoint/safetensors_header.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

namespace trireme::checkpoint {
namespace {

using Json = nlohmann::json;

// Accepts only what the format allows and rejects the rest during parsing, so that a damaged header takes no memory.
class HeaderReader {
 public:
  explicit HeaderReader(Header& header) : header_(header) {}

  bool start_object(std::size_t) {
    if (where_ == Where::kStart) return go(Where::kNames);
    if (where_ == Where::kNames && has_key_) return begin_entry();
    return unexpected("an object");
  }
  bool end_object() {
    if (where_ == Where::kNames) return go(Where::kEnd);
    if (where_ == Where::kMetadata) return go(Where::kNames);
    return finish_entry();
  }
  bool key(std::string& name) {
    key_ = std::move(name);
    has_key_ = true;
    return true;
  }
  bool start_array(std::size_t) {
    if (where_ != Where::kEntry || (key_ != "shape" && key_ != "data_offsets")) return unexpected("a list");
    auto& list = key_ == "shape" ? shape_ : offsets_;
    if (list) return fail(fmt::format("has '{}' twice", key_));
    list.emplace();
    return go(Where::kList);
  }
  bool end_array() { return go(Where::kEntry); }

  bool string(std::string& text) {
    if (where_ == Where::kMetadata) {
      if (header_.metadata.try_emplace(key_, std::move(text)).second) return true;
      return fail(fmt::format("has '{}' twice", key_));
    }
    if (where_ != Where::kEntry || key_ != "dtype") return unexpected("a string");
    if (dtype_) return fail("has 'dtype' twice");
    dtype_ = std::move(text);
    return true;
  }
  bool number_unsigned(Json::number_unsigned_t value) {
    if (where_ != Where::kList) return unexpected("a number");
    auto& list = key_ == "shape" ? *shape_ : *offsets_;
    if (list.size() == kMaxDimensions)
      return fail(fmt::format("has a '{}' with more than {} elements", key_, kMaxDimensions));
    list.push_back(value);
    return true;
  }
  bool number_integer(Json::number_integer_t value) { return unexpected(fmt::format("the number {}", value)); }
  bool number_float(Json::number_float_t, const std::string& text) { return unexpected("the number " + text); }
  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a bool"); }
  bool binary(Json::binary_t&) { return unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& problem) {
    if (failure_.empty()) failure_ = fmt::format("not JSON at byte {}: {}", position, problem.what());
    return false;
  }

  const std::string& failure() const { return failure_; }

 private:
  enum class Where { kStart, kNames, kMetadata, kEntry, kList, kEnd };
  static constexpr std::size_t kMaxDimensions = 64;

  bool go(Where where) {
    where_ = where;
    return true;
  }

  bool fail(const std::string& why) {
    const bool inside = where_ != Where::kStart && where_ != Where::kNames;
    failure_ = inside ? fmt::format("'{}' {}", name_, why) : why;
    return false;
  }

  bool unexpected(const std::string& what) {
    return fail(has_key_ ? fmt::format("has {} as '{}'", what, key_) : fmt::format("expected an object, got {}", what));
  }

  bool begin_entry() {
    name_ = std::exchange(key_, {});
    has_key_ = false;
    if (!names_.insert(name_).second) return fail(fmt::format("duplicate name '{}'", name_));
    return go(name_ == "__metadata__" ? Where::kMetadata : Where::kEntry);
  }

  bool finish_entry() {
    if (!dtype_ || !shape_ || !offsets_) return fail("must have dtype, shape and data_offsets");
    if (offsets_->size() != 2) return fail(fmt::format("has {} data_offsets, not 2", offsets_->size()));
    const auto dtype = find_dtype(*dtype_);
    if (!dtype) return fail(fmt::format("has the unknown type {}", *dtype_));
    TensorEntry entry{name_, *dtype, {}, (*offsets_)[0], (*offsets_)[1]};
    for (std::uint64_t extent : *shape_) {
      if (!std::in_range<std::int64_t>(extent)) return fail(fmt::format("has the invalid extent {}", extent));
      entry.shape.push_back(static_cast<std::int64_t>(extent));
    }
    header_.entries.push_back(std::move(entry));
    dtype_.reset();
    shape_.reset();
    offsets_.reset();
    return go(Where::kNames);
  }

  Header& header_;
  Where where_ = Where::kStart;
  std::string key_;
  bool has_key_ = false;
  std::string name_;
  std::unordered_set<std::string> names_;
  std::optional<std::string> dtype_;
  std::optional<std::vector<std::uint64_t>> shape_;
  std::optional<std::vector<std::uint64_t>> offsets_;
  std::string failure_;
};

}  // namespace

base::Result<void> read_entries(std::string_view text, Header& header) {
  HeaderReader reader(header);
  if (Json::sax_parse(text.begin(), text.end(), &reader)) return {};
  return base::error("{}", reader.failure());
}

}  // namespace trireme::checkpoint
