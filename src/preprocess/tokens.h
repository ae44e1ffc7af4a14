#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "preprocess/categories.h"
#include "preprocess/column_preprocessor.h"

namespace trireme::preprocess {

// A part of a text, or an element of a list of tokens, which may be numbers. Valid while its column lives.
class Token {
 public:
  explicit Token(std::string_view text) : text_(text) {}
  Token(const Inside& list, std::int64_t index) : list_(&list), index_(list.first + index) {}

  std::int64_t find_in(const Places& places) const {
    return list_ ? places.find(*list_->type, *list_->values, index_) : places.find(text_);
  }
  void add_to(Places& places, std::int64_t place) const {
    if (list_) places.add(*list_->type, *list_->values, index_, place);
    else places.add(text_, place);
  }
  base::Result<Value> value() const {
    return list_ ? value_of(*list_->type, *list_->values, index_) : base::Result<Value>(Value(text_));
  }
  // Python's str().
  std::string text() const;

 private:
  std::string_view text_;
  const Inside* list_ = nullptr;
  std::int64_t index_ = 0;
};

// A preprocessor that splits texts into tokens first.
class TextPreprocessor : public EachColumnPreprocessor {
 public:
  using EachColumnPreprocessor::EachColumnPreprocessor;

 protected:
  base::Result<const Column*> text_column(const Table& table, std::size_t index, bool nulls) const;
  // A column without nulls of texts, or of lists of tokens.
  base::Result<const Column*> token_column(const Table& table, std::size_t index) const;
  // Splits at each space, or by the tokenization function.
  base::Result<void> for_each_token(std::string_view text, const std::function<void(std::string_view)>& see) const;
  // Null elements of lists are skipped.
  base::Result<void> for_each_token(const Column& column,
                                    const std::function<void(std::int64_t row, const Token&)>& see) const;
};

// The index of a token among this number; the same on every machine and in every process.
std::int64_t hashed(std::string_view token, std::int64_t places);
// The error names the argument.
base::Result<std::int64_t> checked_features(const Arguments& arguments);
// Zeros; an error if they do not fit into memory.
base::Result<Tensor> zeros_of(DType dtype, std::int64_t rows, std::int64_t width);

}  // namespace trireme::preprocess
