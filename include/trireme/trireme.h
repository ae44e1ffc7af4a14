#pragma once

// The complete C++ API. Start with trainer.h (the driver's side) and context.h (the training function's side).

#include "trireme/cancel.h"
#include "trireme/checkpoint.h"
#include "trireme/config.h"
#include "trireme/context.h"
#include "trireme/data.h"
#include "trireme/filesystem.h"
#include "trireme/preprocessors.h"
#include "trireme/result.h"
#include "trireme/state.h"
#include "trireme/store.h"
#include "trireme/trainer.h"
#include "trireme/value.h"
