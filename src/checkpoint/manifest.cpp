#include "checkpoint/manifest.h"

#include <algorithm>
#include <array>

#include "base/json.h"
#include "base/text.h"
#include "storage/digest.h"
#include "storage/paths.h"

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t kFormat = 2;

// The end of the text. The checksum covers all bytes before this.
constexpr std::string_view kBeforeChecksum = ",\n  \"checksum\": \"";
constexpr std::size_t kHexDigits = 16;
constexpr std::string_view kAfterChecksum = "\"\n}\n";
constexpr std::size_t kEnd = kBeforeChecksum.size() + kHexDigits + kAfterChecksum.size();

constexpr std::array kStatuses = {Status::kCommitted, Status::kPendingValidation, Status::kValidated,
                                  Status::kValidationTimeout, Status::kValidationFailed};

// File names are bytes to the kernel; JSON would replace those that are not valid UTF-8.
Value path_value(const std::string& path) {
  if (base::is_utf8(path)) return path;
  return Bytes{path};
}

bool is_checksum(const std::string& text) {
  return text.size() == kHexDigits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

base::Result<storage::FileRecord> record_from(const Value& path, const Value& size, const Value& xxh3) {
  storage::FileRecord record;
  if (const auto* text = path.get_if<std::string>()) {
    record.path = *text;
  } else if (const auto* bytes = path.get_if<Bytes>()) {
    record.path = bytes->data;
  } else {
    return base::error("a file has a path of type {}", path.type_name());
  }
  TRIREME_TRY(storage::check_relative(record.path));
  const auto* bytes = size.get_if<std::int64_t>();
  if (!bytes || *bytes < 0) return base::error("'{}' has no size", record.path);
  record.size = static_cast<std::uint64_t>(*bytes);
  const auto* digest = xxh3.get_if<std::string>();
  if (!digest || !is_checksum(*digest)) return base::error("'{}' has no checksum", record.path);
  record.xxh3 = *digest;
  return record;
}

// Fields in the order in which people look for them, one file per line.
std::string encode_fields(const Manifest& manifest) {
  std::string out = "{";
  auto field = [&](std::string_view name, const Value& value) {
    if (out.size() > 1) out += ',';
    out += fmt::format("\n  \"{}\": ", name);
    base::append_json(out, value);
  };
  field("format", kFormat);
  field("index", manifest.index);
  field("attempt", manifest.attempt);
  field("time", manifest.time);
  field("status", to_string(manifest.status));
  field("metrics", manifest.metrics);
  field("validation", manifest.validation);
  if (!manifest.positions.empty()) field("positions", manifest.positions);
  out += ",\n  \"files\": [";
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    const auto& file = manifest.files[i];
    out += i == 0 ? "\n    " : ",\n    ";
    base::append_json(out, Dict{{"path", path_value(file.path)}, {"size", file.size}, {"xxh3", file.xxh3}});
  }
  out += manifest.files.empty() ? "]" : "\n  ]";
  return out;
}

base::Result<void> check_checksum(std::string_view text) {
  if (text.size() < kEnd || !text.ends_with(kAfterChecksum) ||
      text.substr(text.size() - kEnd, kBeforeChecksum.size()) != kBeforeChecksum) {
    return base::error("it does not end with its checksum: it was truncated or edited");
  }
  const auto stored = text.substr(text.size() - kEnd + kBeforeChecksum.size(), kHexDigits);
  const auto computed = storage::digest_of(text.substr(0, text.size() - kEnd));
  if (stored != computed) {
    return base::error("its checksum is {}, but it lists {}: it was damaged or edited", computed, stored);
  }
  return {};
}

template <typename T>
base::Result<T> field_of(const Dict& fields, std::string_view name) {
  const Value* value = fields.find(name);
  if (!value) return base::error("it has no '{}'", name);
  const T* held = value->get_if<T>();
  if (!held) return base::error("its '{}' is {}", name, value->type_name());
  return *held;
}

}  // namespace

const char* to_string(Status status) {
  switch (status) {
    case Status::kCommitted: return "COMMITTED";
    case Status::kPendingValidation: return "PENDING_VALIDATION";
    case Status::kValidated: return "VALIDATED";
    case Status::kValidationTimeout: return "VALIDATION_TIMEOUT";
    case Status::kValidationFailed: return "VALIDATION_FAILED";
  }
  TRIREME_CHECK(false, "status {}", static_cast<int>(status));
}

base::Result<Status> status_from(std::string_view name) {
  for (Status status : kStatuses) {
    if (name == to_string(status)) return status;
  }
  return base::error("unknown status '{}'", name);
}

std::string encode(const Manifest& manifest) {
  std::string text = encode_fields(manifest);
  const std::string checksum = storage::digest_of(text);
  text += kBeforeChecksum;
  text += checksum;
  text += kAfterChecksum;
  return text;
}

base::Result<Manifest> decode_manifest(std::string_view text) {
  TRIREME_TRY(check_checksum(text));
  TRIREME_ASSIGN(const auto fields, base::parse_json_dict(text));
  TRIREME_ASSIGN(const auto format, field_of<std::int64_t>(fields, "format"));
  if (format != kFormat) {
    return base::error("it has format {}, this version reads {}; use the version of Trireme that wrote it", format,
                       kFormat);
  }
  Manifest manifest;
  TRIREME_ASSIGN(manifest.index, field_of<std::int64_t>(fields, "index"));
  TRIREME_ASSIGN(const auto attempt, field_of<std::int64_t>(fields, "attempt"));
  if (!std::in_range<int>(attempt)) return base::error("its 'attempt' is {}", attempt);
  manifest.attempt = static_cast<int>(attempt);
  TRIREME_ASSIGN(manifest.time, field_of<double>(fields, "time"));
  TRIREME_ASSIGN(const auto status, field_of<std::string>(fields, "status"));
  TRIREME_ASSIGN(manifest.status, status_from(status));
  TRIREME_ASSIGN(manifest.metrics, field_of<Dict>(fields, "metrics"));
  if (const Value* validation = fields.find("validation")) manifest.validation = *validation;
  if (fields.contains("positions")) {
    TRIREME_ASSIGN(manifest.positions, field_of<Dict>(fields, "positions"));
  }
  TRIREME_ASSIGN(const auto files, field_of<List>(fields, "files"));
  manifest.files.reserve(files.size());
  for (const auto& file : files) {
    const auto* entry = file.get_if<Dict>();
    if (!entry || !entry->contains("path") || !entry->contains("size") || !entry->contains("xxh3")) {
      return base::error("a file has no path, size or xxh3");
    }
    TRIREME_ASSIGN(auto record, record_from((*entry)["path"], (*entry)["size"], (*entry)["xxh3"]));
    manifest.files.push_back(std::move(record));
  }
  return manifest;
}

List to_list(const std::vector<storage::FileRecord>& files) {
  List list;
  list.reserve(files.size());
  for (const auto& file : files) list.push_back(List{path_value(file.path), file.size, file.xxh3});
  return list;
}

base::Result<std::vector<storage::FileRecord>> files_from(const List& list) {
  std::vector<storage::FileRecord> files;
  files.reserve(list.size());
  for (const auto& item : list) {
    const auto* entry = item.get_if<List>();
    if (!entry || entry->size() != 3)
      return base::error("expected a file as [path, size, xxh3], got {}", base::to_json(item));
    TRIREME_ASSIGN(auto record, record_from((*entry)[0], (*entry)[1], (*entry)[2]));
    files.push_back(std::move(record));
  }
  return files;
}

}  // namespace trireme::checkpoint
