#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/preprocessors/columns_kind.h"

namespace trireme::api::preprocessing {

// A preprocessor that splits texts into tokens first.
class TextKind : public EachColumnKind {
 public:
  TextKind(InOut names, TokenizationFunction function)
      : EachColumnKind(std::move(names)), function_(std::move(function)) {}

  std::string_view function_argument() const override { return function_ ? "tokenization_fn" : ""; }

 protected:
  base::Result<const Column*> text_column(const Table& table, std::size_t index, bool nulls) const;
  // Split at each space, or by the function.
  base::Result<std::vector<std::string>> tokens(std::string_view text) const;

 private:
  TokenizationFunction function_;
};

// The index of a token among this number; the same on every machine, in every process and in Python.
std::int64_t hashed(std::string_view token, std::int64_t places);
// The error names the argument.
base::Result<std::int64_t> checked_features(const Arguments& arguments);
// Zeros; an error if they do not fit into memory.
base::Result<Tensor> zeros_of(DType dtype, std::int64_t rows, std::int64_t width);

}  // namespace trireme::api::preprocessing
