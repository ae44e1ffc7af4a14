#include "preprocess/tokens.h"

#include "base/sha256.h"
#include "preprocess/columns.h"

namespace trireme::preprocess {

std::string Token::text() const {
  if (!list_) return std::string(text_);
  const auto found = value();
  if (!found) return "";
  const auto* text = found->get_if<std::string>();
  return text ? *text : python_text(*found);
}

base::Result<const Column*> TextPreprocessor::text_column(const Table& table, std::size_t index, bool nulls) const {
  TRIREME_ASSIGN(const Column* found, table.find(column(index), name()));
  if (!is_text(found->format()) && found->format() != "n")
    return base::error("{}: column '{}' is {}, expected text", name(), column(index), found->type());
  if (!nulls && has_missing(*found)) {
    return base::error(
        "{0}: column '{1}' has nulls: fill them first (SimpleImputer(['{1}'], strategy='constant', fill_value='')), or "
        "filter their rows out",
        name(), column(index));
  }
  return found;
}

base::Result<const Column*> TextPreprocessor::token_column(const Table& table, std::size_t index) const {
  TRIREME_ASSIGN(const Column* found, table.find(column(index), name()));
  if (!is_list(found->format())) return text_column(table, index, false);
  if (has_missing(*found)) return nulls_in(column(index), name());
  const std::string_view items = found->schema->children[0]->format;
  if (is_text(items) || is_number(items) || items == "n") return found;
  return base::error("{}: column '{}' is {}, expected text, or lists of tokens", name(), column(index), found->type());
}

base::Result<void> TextPreprocessor::for_each_token(std::string_view text,
                                                    const std::function<void(std::string_view)>& see) const {
  const auto& function = origin().tokenization_fn;
  if (!function) {
    for (std::size_t end = text.find(' '); end != std::string_view::npos; end = text.find(' ')) {
      see(text.substr(0, end));
      text.remove_prefix(end + 1);
    }
    see(text);
    return {};
  }
  // Exception boundary: anything the user's function throws is an error of the text.
  try {
    for (const auto& token : function(text)) see(token);
    return {};
  } catch (const std::exception& thrown) {
    return base::error("{}: tokenization_fn: {}", name(), thrown.what());
  } catch (...) {
    return base::error("{}: tokenization_fn: an exception that is not a std::exception", name());
  }
}

base::Result<void> TextPreprocessor::for_each_token(
    const Column& column, const std::function<void(std::int64_t row, const Token&)>& see) const {
  const bool lists = is_list(column.format());
  for (std::int64_t row = 0; row < column.rows(); ++row) {
    if (lists) {
      const Inside inside = list_at(*column.schema, *column.array, row);
      for (std::int64_t i = 0; i < inside.count; ++i) {
        if (!null_at(*inside.values, inside.first + i)) see(row, Token(inside, i));
      }
      continue;
    }
    TRIREME_TRY(for_each_token(text_at(*column.schema, *column.array, row),
                               [&](std::string_view token) { see(row, Token(token)); }));
  }
  return {};
}

std::int64_t hashed(std::string_view token, std::int64_t places) {
  __extension__ using Wide = unsigned __int128;
  Wide left = 0;
  for (const char byte : base::sha256(token))
    left = (left << 8 | static_cast<std::uint8_t>(byte)) % static_cast<Wide>(places);
  return static_cast<std::int64_t>(left);
}

base::Result<std::int64_t> checked_features(const Arguments& arguments) {
  TRIREME_ASSIGN(const std::int64_t number, arguments.whole("num_features"));
  if (number < 1) return base::error("num_features={}: expected at least 1", number);
  return number;
}

base::Result<Tensor> zeros_of(DType dtype, std::int64_t rows, std::int64_t width) {
  constexpr std::int64_t kMost = std::int64_t{1} << 36;
  std::int64_t values = 0;
  if (__builtin_mul_overflow(rows, width, &values) || values > kMost)
    return base::error("vectors of {} numbers for {} rows do not fit into memory", width, rows);
  return Tensor(dtype, {rows, width});
}

}  // namespace trireme::preprocess
