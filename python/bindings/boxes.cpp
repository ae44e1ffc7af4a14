#include "checkpoint/boxes.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"

namespace trireme::python {
namespace {

using checkpoint::Box;
// Offset and shape.
using GivenBox = std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>;

Box box_of(const GivenBox& given, const GivenBox& wanted) {
  Box box{given.first, given.second};
  if (!box.comparable({wanted.first, wanted.second})) {
    throw nb::value_error("the boxes have different numbers of dimensions");
  }
  return box;
}

nb::tuple tuple_of(const Box& box) {
  return nb::make_tuple(nb::tuple(nb::cast(box.offset)), nb::tuple(nb::cast(box.shape)));
}

nb::list overlaps(const GivenBox& wanted, const std::vector<GivenBox>& parts) {
  const Box whole = box_of(wanted, wanted);
  nb::list found;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto common = checkpoint::overlap(box_of(parts[i], wanted), whole);
    if (common) found.append(nb::make_tuple(i, tuple_of(*common)));
  }
  return found;
}

nb::object first_gap(const GivenBox& wanted, const std::vector<GivenBox>& parts) {
  std::vector<Box> boxes;
  boxes.reserve(parts.size());
  for (const auto& each : parts) boxes.push_back(box_of(each, wanted));
  const auto missing = checkpoint::uncovered(box_of(wanted, wanted), boxes);
  return missing.empty() ? nb::none() : nb::object(tuple_of(missing.front()));
}

}  // namespace

void bind_boxes(nb::module_& module) {
  module.def(
      "box_overlaps", &overlaps, nb::arg("wanted"), nb::arg("parts"),
      nb::sig("def box_overlaps(wanted: tuple[Sequence[int], Sequence[int]], parts: Sequence[tuple[Sequence[int], "
              "Sequence[int]]]) -> list[tuple[int, tuple[tuple[int, ...], tuple[int, ...]]]]"),
      "The index of each part that overlaps the wanted box, and the common box. A box is (offset, shape).");
  module.def("box_gap", &first_gap, nb::arg("wanted"), nb::arg("parts"),
             nb::sig("def box_gap(wanted: tuple[Sequence[int], Sequence[int]], parts: Sequence[tuple[Sequence[int], "
                     "Sequence[int]]]) -> tuple[tuple[int, ...], tuple[int, ...]] | None"),
             "A box inside of the wanted one that no part covers, or None.");
}

}  // namespace trireme::python
