#pragma once

namespace trireme::arrow {

// Newer Arrows have the functions that casts, sorts and aggregates need in a library that must be asked to bring them.
void load_kernels();

}  // namespace trireme::arrow
