#include "base/tick_watch.h"

#include <doctest/doctest.h>

namespace tick_watch_test {

using namespace trireme::base;

TEST_CASE("lateness of a periodic check") {
  auto at = [](double seconds) {
    return MonotonicTime(std::chrono::duration_cast<MonotonicTime::duration>(Seconds(1000.0 + seconds)));
  };
  auto seconds = [](MonotonicTime::duration late) { return Seconds(late).count(); };
  TickWatch watch(Seconds(0.3), at(-5.3));
  CHECK(seconds(watch.late(at(0.0))) == doctest::Approx(5.0));  // the first period counts too
  CHECK(seconds(watch.late(at(0.3))) == 0.0);
  CHECK(seconds(watch.late(at(1.0))) == 0.0);  // a busy machine
  CHECK(seconds(watch.late(at(61.3))) == doctest::Approx(60.0));
  CHECK(seconds(watch.late(at(61.6))) == 0.0);
  CHECK(seconds(watch.late(at(62.5))) == doctest::Approx(0.6));
}

}  // namespace tick_watch_test
