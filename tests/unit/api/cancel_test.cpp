#include "trireme/cancel.h"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "api/cancel_hooks.h"

namespace cancel_test {

using trireme::api::CancelHooks;

TEST_CASE("a hook that fails does not keep the others from being called") {
  CancelHooks hooks;
  std::vector<std::string> called;
  for (const std::string name : {"first", "second"}) {
    CHECK(hooks.add_on_cancel([&, name] {
      called.push_back("cancel " + name);
      throw std::runtime_error(name);
    }));
    hooks.add_on_interrupt([&, name] {
      called.push_back("interrupt " + name);
      throw std::runtime_error(name);
    });
  }
  CHECK_THROWS_WITH(hooks.cancel(), "first");
  CHECK_THROWS_WITH(hooks.interrupt(), "first");
  CHECK(called == std::vector<std::string>{"cancel first", "cancel second", "interrupt first", "interrupt second"});
}

TEST_CASE("a hook that is added after the cancel is refused") {
  CancelHooks hooks;
  hooks.cancel();
  CHECK(!hooks.add_on_cancel([] {}));
}

TEST_CASE("hooks are for training functions") {
  CHECK_THROWS_WITH(trireme::on_cancel([] {}),
                    "on_cancel() cannot be used outside of a training function; call it in the function passed to a "
                    "trainer");
  CHECK_THROWS_AS(trireme::on_interrupt([] {}), std::runtime_error);
}

}  // namespace cancel_test
