#include "checkpoint/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/json.h"
#include "base/text.h"
#include "checkpoint/safetensors_header.h"

namespace trireme::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are written in the byte order of memory");

constexpr std::uint64_t kAlignment = 64;

// The largest power of two, up to kAlignment, that divides the tensor's size.
std::uint64_t alignment_of(const Tensor& tensor) {
  const std::uint64_t bytes = tensor.num_bytes();
  return bytes == 0 ? kAlignment : std::min(kAlignment, bytes & (~bytes + 1));
}

void append_entry(std::string& out, const NamedTensor& named, std::uint64_t begin) {
  base::append_json(out, named.name);
  fmt::format_to(std::back_inserter(out), R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                 name_of(named.tensor.dtype()), fmt::join(named.tensor.shape(), ","), begin,
                 begin + named.tensor.num_bytes());
}

std::string header_text(const std::vector<NamedTensor>& tensors, const TextMap& metadata) {
  std::string out = "{";
  if (!metadata.empty()) {
    Dict values;
    for (const auto& [key, text] : metadata) values.append(key, text);
    out += R"("__metadata__":)";
    base::append_json(out, values);
  }
  std::uint64_t begin = 0;
  for (const auto& named : tensors) {
    if (out.size() > 1) out += ',';
    append_entry(out, named, begin);
    begin += named.tensor.num_bytes();
  }
  out += '}';
  return out;
}

base::Error misplaced(const TensorEntry& entry, const std::string& why) {
  return base::error("the tensor '{}' {}", entry.name, why);
}

base::Result<void> check_size(const TensorEntry& entry) {
  std::uint64_t bytes = size_of(entry.dtype);
  for (std::int64_t extent : entry.shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes)) {
      return misplaced(entry, fmt::format("has the invalid shape [{}]", fmt::join(entry.shape, ", ")));
    }
  }
  if (entry.end - entry.begin != bytes) {
    return misplaced(entry, fmt::format("takes {}, but {}[{}] has {}", base::count_of(entry.end - entry.begin, "byte"),
                                        name_of(entry.dtype), fmt::join(entry.shape, ", "), bytes));
  }
  return {};
}

// The offsets in the file are relative to the end of the header; ours are relative to the beginning of the file.
base::Result<void> place(std::vector<TensorEntry>& entries, std::uint64_t data_begin, std::uint64_t file_size) {
  const std::uint64_t data_size = file_size - data_begin;
  for (auto& entry : entries) {
    if (entry.begin > entry.end) {
      return misplaced(entry, fmt::format("begins at {}, after its end at {}", entry.begin, entry.end));
    }
    if (entry.end > data_size) {
      return misplaced(entry, fmt::format("ends at byte {} of the data, but there are only {}: the file is "
                                          "truncated or its header is damaged",
                                          entry.end, data_size));
    }
    TRIREME_TRY(check_size(entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::uint64_t at = 0;
  for (auto& entry : entries) {
    if (entry.begin != at) {
      return misplaced(entry, fmt::format("begins at {}, but the previous tensor ends at {}", entry.begin, at));
    }
    at = entry.end;
    entry.begin += data_begin;
    entry.end += data_begin;
  }
  if (at != data_size)
    return base::error("the file has {} after the last tensor", base::count_of(data_size - at, "byte"));
  return {};
}

}  // namespace

base::Result<Layout> lay_out(std::vector<NamedTensor> tensors, const TextMap& metadata) {
  // Descending alignment: each size is a multiple of the alignment of all later tensors, so all stay aligned.
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const auto& a, const auto& b) { return alignment_of(a.tensor) > alignment_of(b.tensor); });
  std::string text = header_text(tensors, metadata);
  const std::uint64_t length_size = sizeof(std::uint64_t);
  text.append((kAlignment - (text.size() + length_size) % kAlignment) % kAlignment, ' ');
  if (text.size() > kMaxHeaderSize) {
    return base::error(
        "the names and shapes of {} tensors take {} bytes, more than the {} that safetensors allows: "
        "merge tensors, or shorten the keys",
        tensors.size(), text.size(), kMaxHeaderSize);
  }
  Layout made;
  const std::uint64_t length = text.size();
  made.head.resize(length_size);
  std::memcpy(made.head.data(), &length, length_size);
  made.head += text;
  made.size = made.head.size();
  made.places.reserve(tensors.size());
  for (auto& named : tensors) {
    const std::uint64_t bytes = named.tensor.num_bytes();
    made.places.push_back({std::move(named.tensor), made.size});
    made.size += bytes;
  }
  return made;
}

base::Result<Header> parse_header(std::string_view file) {
  std::uint64_t length = 0;
  if (file.size() < sizeof length) {
    return base::error("not a safetensors file: it has {}, but the header length alone takes {}",
                       base::count_of(std::ssize(file), "byte"), sizeof length);
  }
  std::memcpy(&length, file.data(), sizeof length);
  file.remove_prefix(sizeof length);
  if (length > kMaxHeaderSize) {
    return base::error("not a safetensors file: a header of {} bytes is over the limit of {}", length, kMaxHeaderSize);
  }
  if (length > file.size()) {
    return base::error("the header takes {} bytes, but the file ends after {}: it is truncated", length, file.size());
  }
  Header header;
  TRIREME_TRY(read_entries(file.substr(0, length), header), "its header is damaged");
  TRIREME_TRY(place(header.entries, sizeof length + length, sizeof length + file.size()));
  return header;
}

}  // namespace trireme::checkpoint
