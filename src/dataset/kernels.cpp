#include "kernels.h"

#include "status.h"

#if __has_include(<arrow/compute/initialize.h>)
#include <arrow/compute/initialize.h>
#define TRIREME_ARROW_HAS_INITIALIZE 1
#endif

namespace trireme::dataset {

void load_kernels() {
#ifdef TRIREME_ARROW_HAS_INITIALIZE
  check(::arrow::compute::Initialize());
#endif
}

}  // namespace trireme::dataset
