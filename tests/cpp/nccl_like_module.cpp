// The Python module `nccl_like`: tests/python/like_nccl.py registers the backend with torch.distributed.

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "nccl_like.h"

PYBIND11_MODULE(nccl_like, module) {
  module.def(
      "create",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout,
         bool watchdog, bool abort_hangs) -> c10::intrusive_ptr<c10d::Backend> {
        return c10::make_intrusive<nccl_like::Backend>(store, rank, size,
                                                       nccl_like::Faults{timeout, watchdog, abort_hangs});
      },
      py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("watchdog"),
      py::arg("abort_hangs"), py::call_guard<py::gil_scoped_release>());
}
