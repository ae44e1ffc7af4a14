#pragma once

#include <optional>

#include "base/clock.h"
#include "trireme/value.h"

namespace trireme::control {

// How long each part of a restart took, from the first sign that something broke to the first report after it.
class RestartTimes {
 public:
  using Time = base::MonotonicTime;

  // `silence`: how long nobody noticed, where the sign was that a worker is silent.
  void noticed(Time now, double silence_s);
  // What broke is known, and what follows; also the beginning of a resize.
  void decided(Time now);
  // Nothing of the old attempt is left: `kept` workers stay, the others have to be started.
  void stopped(Time now, std::int64_t kept, std::int64_t replaced);
  void started(Time now);
  // By the last rank: the process group is there.
  void entered(Time now);
  // The fields of the "restarted" event, with the first report of a restarted gang whose ranks have all entered.
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
