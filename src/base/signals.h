#pragma once

namespace trireme::base {

// For threads of the core: the program's threads handle its signals. Signals raised by a fault reach the thread that
// caused it.
void block_signals();

}  // namespace trireme::base
