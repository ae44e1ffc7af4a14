#include <nanobind/ndarray.h>

#include "bindings.h"
#include "formats/resample.h"

namespace trireme::python {
namespace {

using From = nb::ndarray<const std::uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using To = nb::ndarray<std::uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

std::int64_t size(const auto& array, std::size_t axis) { return static_cast<std::int64_t>(array.shape(axis)); }

void resample(const From& pixels, const To& out) {
  const bool fits = size(out, 2) >= 1 && size(out, 2) <= size(pixels, 2) && size(pixels, 2) <= 4;
  if (!fits || pixels.size() == 0 || out.size() == 0) {
    throw nb::value_error("resample() expects [height, width, bytes per pixel] and [height, width, channels]");
  }
  const formats::Pixels from{pixels.data(), size(pixels, 0), size(pixels, 1), size(out, 2), size(pixels, 2)};
  nb::gil_scoped_release unlocked;
  formats::resample(from, out.data(), size(out, 0), size(out, 1));
}

}  // namespace

void bind_image(nb::module_& module) {
  module.def("resample", &resample, nb::arg("pixels").noconvert(), nb::arg("out").noconvert(),
             "Resizes an image to the size of `out`, like Pillow's BILINEAR, horizontally first.");
}

}  // namespace trireme::python
