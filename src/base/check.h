#pragma once

#include <fmt/format.h>

#include <stdexcept>

// For bugs in Trireme itself. Business logic never catches it.

namespace trireme::base {

class BrokenInvariant : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace trireme::base

#define TRIREME_CHECK(condition, ...)                                                                            \
  do {                                                                                                           \
    if (!(condition)) {                                                                                          \
      throw ::trireme::base::BrokenInvariant(                                                                    \
          fmt::format("{}:{}: {} does not hold: {}", __FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__))); \
    }                                                                                                            \
  } while (false)
