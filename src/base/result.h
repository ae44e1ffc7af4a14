#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

// For expected failures: I/O, peers and bad input are returned as a Result, and each layer adds context. A violated
// invariant throws instead (check.h).

namespace trireme::base {

// For programs to act on. The text is for people and may change at any time.
enum class ErrorCode {
  kOther,
  kTimeout,  // no answer yet; it may still arrive
  kDenied,   // the peer did not prove that it belongs to the run
};

class [[nodiscard]] Error {
 public:
  explicit Error(std::string what, ErrorCode code = ErrorCode::kOther) : what_(std::move(what)), code_(code) {}

  // Adds context: "could not do X". The chain reads from the outside in.
  Error wrap(std::string what) && {
    Error outer(std::move(what), code_);
    outer.cause_ = std::make_shared<const Error>(std::move(*this));
    return outer;
  }

  const std::string& what() const { return what_; }
  const Error* cause() const { return cause_.get(); }
  // The code of the innermost error.
  ErrorCode code() const { return code_; }

  // The complete chain: "could not start the worker: could not open log.txt: No space left on device".
  std::string message() const { return cause_ ? what_ + ": " + cause_->message() : what_; }

 private:
  std::string what_;
  ErrorCode code_;
  std::shared_ptr<const Error> cause_;  // immutable, shared: errors are copied into events and results
};

template <typename... Args>
Error error(fmt::format_string<Args...> format, Args&&... args) {
  return Error(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
Error error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error(fmt::format(format, std::forward<Args>(args)...), code);
}

// "open /x: Permission denied (13)".
Error system_error(std::string_view what, int error_number);

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    TRIREME_CHECK(ok(), "value() of a failed Result: {}", error().message());
    return std::get<0>(state_);
  }
  const T& value() const& {
    TRIREME_CHECK(ok(), "value() of a failed Result: {}", error().message());
    return std::get<0>(state_);
  }
  T&& value() && {
    TRIREME_CHECK(ok(), "value() of a failed Result: {}", error().message());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::make_unique<Error>(std::move(error))) {}

  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const& { return *error_; }
  Error&& error() && { return std::move(*error_); }

 private:
  std::unique_ptr<Error> error_;
};

}  // namespace trireme::base

// Returns the error of `expression` from the current function, with the context added in front.
#define TRIREME_TRY(expression, ...)                                                                       \
  do {                                                                                                     \
    auto trireme_try_ = (expression);                                                                      \
    if (!trireme_try_) return std::move(trireme_try_).error() __VA_OPT__(.wrap(fmt::format(__VA_ARGS__))); \
  } while (false)

#define TRIREME_TRY_CONCAT_(a, b) a##b
#define TRIREME_TRY_NAME_(a, b) TRIREME_TRY_CONCAT_(a, b)
#define TRIREME_ASSIGN_(name, target, expression, ...)                                   \
  auto name = (expression);                                                              \
  if (!name) return std::move(name).error() __VA_OPT__(.wrap(fmt::format(__VA_ARGS__))); \
  target = std::move(name).value()

// TRIREME_ASSIGN(auto fd, open_file(path), "could not open the log of rank {}", rank);
#define TRIREME_ASSIGN(target, expression, ...) \
  TRIREME_ASSIGN_(TRIREME_TRY_NAME_(trireme_assign_, __LINE__), target, expression, __VA_ARGS__)
