#pragma once

#include <string>

#include "base/result.h"
#include "trireme/value.h"

namespace trireme::worker {

// Whether a value may be part of a report. `where` names it in the error.
base::Result<void> check_metric(const Value& value, const std::string& where);
base::Result<void> check_metrics(const Dict& metrics, const std::string& where);

}  // namespace trireme::worker
