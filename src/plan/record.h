#pragma once

#include "data/arrays.h"

namespace trireme::plan {

using data::ArrayProducer;
using data::batch_of;
using data::make_array;
using data::make_schema;
using data::make_stream;
using data::OwnedArray;
using data::OwnedSchema;
using data::OwnedStream;
using data::Record;
using data::record_of;
using data::RecordColumn;
using data::renamed;
using data::split;
using data::stream_of;

}  // namespace trireme::plan
