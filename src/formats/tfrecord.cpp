#include "formats/tfrecord.h"

#include <cstring>

#include "formats/crc32c.h"

namespace trireme::formats {
namespace {

constexpr std::size_t kHead = 12;  // the length and its checksum
constexpr std::size_t kTail = 4;
// Larger values do not fit into a column, and a compressed file may unpack to any size.
constexpr std::uint64_t kLargestRecord = (std::uint64_t{1} << 31) - 1;
constexpr std::int64_t kBatchRecords = 1024;
constexpr std::size_t kBatchBytes = std::size_t{8} << 20;
constexpr std::int64_t kLookedAt = 1024;

template <typename T>
T little_endian(std::string_view bytes) {
  T value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) value = static_cast<T>(value << 8 | static_cast<std::uint8_t>(bytes[i]));
  return value;
}

// TFRecord rotates and offsets the checksum, since the checksum of data that contains checksums is weak.
bool matches(std::string_view bytes, std::string_view stored) {
  const std::uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xA282EAD8U == little_endian<std::uint32_t>(stored);
}

}  // namespace

void RecordCutter::add(std::string_view bytes) {
  bytes_.erase(0, at_);
  at_ = 0;
  bytes_.append(bytes);
}

base::Error RecordCutter::wrong() const {
  return base::error("{}, record {}: wrong checksum; the file is corrupt or not a TFRecord file", file_, records_);
}

base::Result<std::optional<std::string_view>> RecordCutter::next() {
  const std::string_view rest = std::string_view(bytes_).substr(at_);
  if (rest.size() < kHead) return std::optional<std::string_view>();
  const std::string_view length_bytes = rest.substr(0, sizeof(std::uint64_t));
  if (!length_checked_ && !matches(length_bytes, rest.substr(length_bytes.size()))) return wrong();
  length_checked_ = true;
  const auto length = little_endian<std::uint64_t>(length_bytes);
  if (length > kLargestRecord) {
    return base::error("{}, record {}: it has {} bytes, more than the limit of {}", file_, records_, length,
                       kLargestRecord);
  }
  if (rest.size() - kHead < kTail || length > rest.size() - kHead - kTail) return std::optional<std::string_view>();
  const std::string_view record = rest.substr(kHead, static_cast<std::size_t>(length));
  if (!matches(record, rest.substr(kHead + record.size()))) return wrong();
  at_ += kHead + record.size() + kTail;
  length_checked_ = false;
  ++records_;
  return std::optional(record);
}

base::Result<void> RecordCutter::end() const {
  if (at_ == bytes_.size()) return {};
  return base::error("{} is truncated in record {}", file_, records_);
}

base::Result<bool> TfRecordTypes::add(std::string_view bytes) {
  records_.add(bytes);
  while (!enough_) {
    TRIREME_ASSIGN(const auto record, records_.next());
    if (!record) return true;
    TRIREME_TRY(types_.look(*record), "{}, record {}", records_.file(), records_.records() - 1);
    enough_ = records_.records() >= kLookedAt;
  }
  return false;
}

base::Result<std::vector<FeatureColumn>> TfRecordTypes::columns() const {
  if (!enough_) TRIREME_TRY(records_.end());
  auto columns = types_.columns();
  if (columns.empty()) {
    return base::error("{} has no records with features: the first file defines the columns", records_.file());
  }
  return columns;
}

TfRecordReader::TfRecordReader(std::string file, std::vector<FeatureColumn> columns,
                               const std::vector<std::string>& known, std::int64_t skip)
    : records_(std::move(file)), columns_(std::move(columns), known), skip_(skip) {}

base::Result<std::optional<data::OwnedArray>> TfRecordReader::next() {
  while (columns_.rows() < kBatchRecords && size_ < kBatchBytes) {
    TRIREME_ASSIGN(const auto record, records_.next());
    if (!record) {
      if (!ended_) return std::optional<data::OwnedArray>();
      TRIREME_TRY(records_.end());
      if (columns_.rows() == 0) return std::optional<data::OwnedArray>();
      break;
    }
    if (records_.records() <= skip_) continue;
    TRIREME_TRY(columns_.add(*record), "{}, record {}", records_.file(), records_.records() - 1);
    size_ += record->size();
  }
  size_ = 0;
  return std::optional(columns_.take());
}

}  // namespace trireme::formats
