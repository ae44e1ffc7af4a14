#include "api/preprocessors/tokens.h"

#include "api/preprocessors/columns.h"
#include "base/text.h"
#include "wire/secret.h"

namespace trireme::api::preprocessing {

base::Result<const Column*> TextKind::text_column(const Table& table, std::size_t index, bool nulls) const {
  TRIREME_ASSIGN(const Column* found, table.find(column(index), name()));
  if (!is_text(found->format()) && found->format() != "n")
    return base::error("{}: column '{}' is {}, expected text", name(), column(index), found->type());
  if (!nulls && has_missing(*found)) {
    return base::error(
        "{0}: column '{1}' has nulls: fill them first (SimpleImputer with strategy 'constant'), or "
        "filter their rows out",
        name(), column(index));
  }
  return found;
}

base::Result<std::vector<std::string>> TextKind::tokens(std::string_view text) const {
  if (!function_) return base::split(text, ' ');
  // Exception boundary: anything the user's function throws is an error of the text.
  try {
    return function_(text);
  } catch (const std::exception& thrown) {
    return base::error("{}: tokenization_fn: {}", name(), thrown.what());
  } catch (...) {
    return base::error("{}: tokenization_fn: an exception that is not a std::exception", name());
  }
}

std::int64_t hashed(std::string_view token, std::int64_t places) {
  __extension__ using Wide = unsigned __int128;
  Wide left = 0;
  for (const char byte : wire::sha256(token))
    left = (left << 8 | static_cast<std::uint8_t>(byte)) % static_cast<Wide>(places);
  return static_cast<std::int64_t>(left);
}

base::Result<std::int64_t> checked_features(const Arguments& arguments) {
  TRIREME_ASSIGN(const std::int64_t number, arguments.whole("num_features"));
  if (number < 1) return base::error("num_features = {}: expected at least 1", number);
  return number;
}

base::Result<Tensor> zeros_of(DType dtype, std::int64_t rows, std::int64_t width) {
  constexpr std::int64_t kMost = std::int64_t{1} << 36;
  std::int64_t values = 0;
  if (__builtin_mul_overflow(rows, width, &values) || values > kMost)
    return base::error("vectors of {} numbers for {} rows do not fit into memory", width, rows);
  return Tensor(dtype, {rows, width});
}

}  // namespace trireme::api::preprocessing
