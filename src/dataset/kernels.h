#pragma once

namespace trireme::dataset {

// Newer versions of Arrow have the functions for casts, sorts and aggregates in a separate library that must be
// initialized.
void load_kernels();

}  // namespace trireme::dataset
