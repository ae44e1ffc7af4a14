#pragma once

#include <optional>

#include "base/clock.h"
#include "trireme/value.h"

namespace trireme::control {

// The duration of each part of a restart, from the first sign of a failure to the first report after it.
class RestartTimes {
 public:
  using Time = base::MonotonicTime;

  // `silence_s`: how long the failure was unnoticed, if the sign was a silent worker.
  void noticed(Time now, double silence_s);
  // The cause is known and the next step is decided; also the start of a resize.
  void decided(Time now);
  // The old attempt has stopped: `kept` workers stay, the others must be started.
  void stopped(Time now, std::int64_t kept, std::int64_t replaced);
  void started(Time now);
  // The last rank has entered the function: the process group is ready.
  void entered(Time now);
  // The fields of the "restarted" event, at the first report of a restarted gang after all ranks have entered.
  std::optional<Dict> reported(Time now);

 private:
  std::optional<Time> noticed_;
  std::optional<Time> decided_;
  std::optional<Time> stopped_;
  std::optional<Time> started_;
  std::optional<Time> entered_;
  double silence_s_ = 0.0;
  std::int64_t kept_ = 0;
  std::int64_t replaced_ = 0;
};

}  // namespace trireme::control
