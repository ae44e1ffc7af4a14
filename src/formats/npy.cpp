#include "formats/npy.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

#include "data/element_types.h"

namespace trireme::formats {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::int64_t kLongestHeader = std::int64_t{1} << 20;

// Parses the Python dict literal that NumPy writes: strings, booleans and a tuple of numbers.
class Literal {
 public:
  explicit Literal(std::string_view text) : rest_(text) {}

  bool is(char expected) {
    skip_spaces();
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool is(std::string_view word) {
    skip_spaces();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  std::optional<std::string_view> string() {
    skip_spaces();
    if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) return std::nullopt;
    const std::size_t end = rest_.find(rest_.front(), 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view found = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return found;
  }

  std::optional<std::vector<std::int64_t>> numbers() {
    if (!is('(')) return std::nullopt;
    std::vector<std::int64_t> found;
    bool comma = false;
    while (!is(')')) {
      skip_spaces();
      std::int64_t number = 0;
      const auto [end, failed] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
      if (failed == std::errc::result_out_of_range && *rest_.data() != '-') {
        number = std::numeric_limits<std::int64_t>::max();  // reported as too large
      } else if (failed != std::errc() || number < 0) {
        return std::nullopt;
      }
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      (void)is('L');  // suffix of Python 2 integers
      found.push_back(number);
      comma = is(',');
      if (!comma && !rest_.starts_with(')')) return std::nullopt;
    }
    if (found.size() == 1 && !comma) return std::nullopt;  // a number in parentheses is no tuple
    return found;
  }

  bool at_end() {
    skip_spaces();
    return rest_.empty();
  }

 private:
  void skip_spaces() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n')) rest_.remove_prefix(1);
  }

  std::string_view rest_;
};

// The size of a value of a type such as "<U5", "M8[ns]" or "c16".
std::optional<std::int64_t> bytes_of(std::string_view described) {
  if (described.starts_with('<') || described.starts_with('>') || described.starts_with('|'))
    described.remove_prefix(1);
  if (described.empty()) return std::nullopt;
  const char kind = described.front();
  std::uint32_t count = 0;
  const char* const end = described.data() + described.size();
  const auto [after, failed] = std::from_chars(described.data() + 1, end, count);
  if (failed != std::errc() || (after != end && *after != '[')) return std::nullopt;
  return std::int64_t{count} * (kind == 'U' ? 4 : 1);  // text has 4 bytes per letter
}

base::Result<void> set_type(NpyHeader& header, std::string_view described, NpyValues values) {
  header.descr = described;
  if (const auto dtype = described.size() == 3 ? data::dtype_of_numpy(described.substr(1)) : std::nullopt) {
    header.dtype = *dtype;
    header.swapped = described.front() == '>' && size_of(*dtype) > 1;
    header.item_bytes = static_cast<std::int64_t>(size_of(*dtype));
    return {};
  }
  if (described.ends_with('O')) {
    return base::error("it is an array of objects, which is not supported; save numbers or text");
  }
  const auto bytes = bytes_of(described);
  if (values == NpyValues::kAny && bytes) {
    header.item_bytes = *bytes;
    return {};
  }
  return base::error("its values are {}; only numbers and booleans are supported", described);
}

base::Result<NpyHeader> parse_dict(std::string_view text, NpyValues values) {
  Literal literal(text);
  NpyHeader header;
  bool typed = false;
  bool ordered = false;
  bool shaped = false;
  if (!literal.is('{')) return base::error("its header is invalid");
  while (!literal.is('}')) {
    const auto key = literal.string();
    if (!key || !literal.is(':')) return base::error("its header is invalid");
    if (*key == "descr") {
      const auto described = literal.string();
      if (!described) return base::error("its rows are records of several fields; only numbers are supported");
      TRIREME_TRY(set_type(header, *described, values));
      typed = true;
    } else if (*key == "fortran_order") {
      header.fortran_order = literal.is("True");
      if (!header.fortran_order && !literal.is("False")) return base::error("its header is invalid");
      ordered = true;
    } else if (*key == "shape") {
      auto shape = literal.numbers();
      if (!shape) return base::error("its header is invalid");
      header.shape = *std::move(shape);
      shaped = true;
    } else {
      return base::error("its header is invalid");
    }
    if (literal.is(',')) continue;
    if (!literal.is('}')) return base::error("its header is invalid");
    break;
  }
  if (!typed || !ordered || !shaped || !literal.at_end()) return base::error("its header is invalid");
  auto bytes = std::max<std::int64_t>(header.item_bytes, 1);
  for (const auto size : header.shape) {
    // Multiply sizes after a 0 too, so that the size of one row is known to fit.
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes)) {
      return base::error("it has a shape that is too large: [{}]", fmt::join(header.shape, ", "));
    }
  }
  return header;
}

// From column-major to row-major order.
void transpose(const std::vector<std::int64_t>& shape, std::int64_t width, const char* from, Tensor& out) {
  std::vector<std::int64_t> strides(shape.size(), width);
  for (std::size_t i = 1; i < shape.size(); ++i) strides[i] = strides[i - 1] * shape[i - 1];
  std::vector<std::int64_t> index(shape.size(), 0);
  auto* to = static_cast<char*>(out.data());
  for (char* end = to + out.num_bytes(); to < end; to += width) {
    std::memcpy(to, from, static_cast<std::size_t>(width));
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      from += strides[axis];
      if (++index[axis] < shape[axis]) break;
      from -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace

Tensor npy_tensor(const NpyHeader& header, std::string_view values, std::shared_ptr<const void> owner) {
  const auto width = static_cast<std::int64_t>(size_of(header.dtype));
  const bool transposed = header.fortran_order && header.shape.size() > 1;
  const bool aligned = reinterpret_cast<std::uintptr_t>(values.data()) % static_cast<std::uintptr_t>(width) == 0;
  if (aligned && !transposed && !header.swapped)
    return Tensor::view(header.dtype, header.shape, const_cast<char*>(values.data()), std::move(owner));
  Tensor made(header.dtype, header.shape);
  auto* bytes = static_cast<char*>(made.data());
  if (transposed) transpose(header.shape, width, values.data(), made);
  else if (!values.empty()) std::memcpy(bytes, values.data(), made.num_bytes());
  if (header.swapped) {
    for (char* at = bytes; at < bytes + made.num_bytes(); at += width) std::reverse(at, at + width);
  }
  return made;
}

std::int64_t NpyHeader::value_bytes() const {
  std::int64_t bytes = item_bytes;
  for (const auto size : shape) bytes *= size;
  return bytes;
}

base::Result<NpyPrefix> parse_npy(std::string_view beginning, NpyValues values) {
  const auto byte = [&](std::size_t at) {
    return static_cast<std::int64_t>(static_cast<unsigned char>(beginning[at]));
  };
  if (!beginning.starts_with(kMagic.substr(0, std::min(kMagic.size(), beginning.size())))) {
    return base::error("it does not start with the .npy signature");
  }
  const std::size_t version_at = kMagic.size();
  if (beginning.size() < version_at + 2) return NpyPrefix{std::nullopt, static_cast<std::int64_t>(version_at) + 6};
  const auto version = byte(version_at);
  if (version < 1 || version > 3) return base::error("it has version {}; versions 1 to 3 are supported", version);
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  const std::size_t text_at = version_at + 2 + length_bytes;
  if (beginning.size() < text_at) return NpyPrefix{std::nullopt, static_cast<std::int64_t>(text_at)};
  std::int64_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;) length = length << 8 | byte(version_at + 2 + i);
  if (length > kLongestHeader) return base::error("its header is invalid");
  const std::int64_t begin = static_cast<std::int64_t>(text_at) + length;
  if (static_cast<std::int64_t>(beginning.size()) < begin) return NpyPrefix{std::nullopt, begin};
  TRIREME_ASSIGN(auto header, parse_dict(beginning.substr(text_at, static_cast<std::size_t>(length)), values));
  header.begin = begin;
  return NpyPrefix{std::move(header), 0};
}

}  // namespace trireme::formats
