#pragma once

#include <exception>
#include <functional>
#include <string>

namespace trireme::tests {

// What it throws, of that kind; nothing where it does not.
template <typename Exception = std::exception>
std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace trireme::tests
