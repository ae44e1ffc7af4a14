#include "control/restart_times.h"

namespace trireme::control {

void RestartTimes::noticed(Time now, double silence_s) {
  if (noticed_) return;
  noticed_ = now;
  silence_s_ = silence_s;
}

void RestartTimes::decided(Time now) {
  if (!noticed_) noticed_ = now;
  decided_ = now;
}

void RestartTimes::stopped(Time now, std::int64_t kept, std::int64_t replaced) {
  stopped_ = now;
  started_.reset();  // from an earlier attempt
  entered_.reset();
  kept_ = kept;
  replaced_ = replaced;
}

void RestartTimes::started(Time now) { started_ = now; }

void RestartTimes::entered(Time now) { entered_ = now; }

std::optional<Dict> RestartTimes::reported(Time now) {
  if (!noticed_ || !decided_ || !stopped_ || !started_ || !entered_) return std::nullopt;
  auto seconds = [](Time from, Time to) { return base::Seconds(to - from).count(); };
  Dict told{{"kind", kept_ > 0 ? "warm" : "cold"}, {"kept", kept_}, {"replaced", replaced_}};
  told["detect_s"] = silence_s_;
  told["decide_s"] = seconds(*noticed_, *decided_);
  told["stop_s"] = seconds(*decided_, *stopped_);
  told["start_s"] = seconds(*stopped_, *started_);
  told["rendezvous_s"] = seconds(*started_, *entered_);
  told["restore_s"] = seconds(*entered_, now);
  told["seconds"] = silence_s_ + seconds(*noticed_, now);
  *this = {};
  return told;
}

}  // namespace trireme::control
