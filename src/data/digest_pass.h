#pragma once

#include <cstdint>
#include <string>

#include "data/digest_records.h"
#include "data/pipeline.h"
#include "data/sample_order.h"

// Checks one pass over an epoch, as the ranks of an attempt logged it. Problems are texts; empty: none.

namespace trireme::data {

// Compares the order of rows; the seed only matters if something is shuffled.
bool same_order(Layout a, Layout b);

std::string order_text(const Layout& layout);

// Checks one rank's lines of a pass. Sets `end` to the row after its last line.
std::string check_pass(const LoggedPass& pass, const PassStart& start, const Steps& steps, SampleOrder& order,
                       std::int64_t& end);

// Empty if both ranks started the pass in the same way.
std::string different_start(const LoggedPass& a, const LoggedPass& b);

}  // namespace trireme::data
