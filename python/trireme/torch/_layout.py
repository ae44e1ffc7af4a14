"""The layout of a DTensor: the boxes of the full tensor that this rank holds, and the rank that writes them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, product
from typing import Any

import torch

from trireme._sharded_tensors import Box

try:
    from torch.distributed.tensor import DTensor
except ImportError:  # before torch 2.5
    DTensor = ()

# A contiguous range in one dimension: start, length.
Run = tuple[int, int]
# A mesh dimension that splits this one: number of parts, index of this rank's part, number of earlier splits.
Cut = tuple[int, int, int]


def is_dtensor(value: Any) -> bool:
    return isinstance(value, DTensor)


def local_of(value: Any) -> torch.Tensor:
    """The local tensor of this rank; for a plain tensor, the tensor itself."""
    tensor: torch.Tensor = value.detach()
    return tensor.to_local() if is_dtensor(tensor) else tensor


def boxes_of(value: Any, place: str) -> list[tuple[Box, tuple[slice, ...]]]:
    """This rank's part as boxes of the full tensor, each with its slices in the local tensor."""
    shape = tuple(value.shape)
    if not is_dtensor(value):
        return [(Box((0,) * len(shape), shape), tuple(slice(0, size) for size in shape))]
    coordinate = value.device_mesh.get_coordinate()
    if coordinate is None:  # this rank is not in the mesh
        return []
    runs = [_runs(size, _cuts(value, dim, coordinate, place)) for dim, size in enumerate(shape)]
    held = tuple(sum(length for _, length in each) for each in runs)
    local = tuple(local_of(value).shape)
    if held != local and 0 not in (math.prod(held), math.prod(local)):
        raise ValueError(
            f"'{place}': this rank holds {local} of {shape}, but the placements {value.placements} imply {held}; store "
            "its full_tensor()"
        )
    if 0 in held:
        return []
    boxes = []
    for chosen in product(*(zip(each, _starts(each), strict=True) for each in runs)):
        box = Box(tuple(run[0] for run, _ in chosen), tuple(run[1] for run, _ in chosen))
        boxes.append((box, tuple(slice(start, start + run[1]) for run, start in chosen)))
    return boxes


def writes(value: Any, place: str) -> bool:
    """Whether this rank stores its part, of all ranks that hold the same part. The choice varies by tensor."""
    mesh, coordinate = value.device_mesh, value.device_mesh.get_coordinate()
    if coordinate is None:
        return False
    copies = [dim for dim, placement in enumerate(value.placements) if placement.is_replicate()]
    number = 0
    for dim in copies:
        number = number * mesh.size(dim) + coordinate[dim]
    return number == turn(place, math.prod(mesh.size(dim) for dim in copies))


def turn(place: str, count: int) -> int:
    """Chooses one of `count` candidates; the same on every rank."""
    return zlib.crc32(place.encode()) % count


def _cuts(value: Any, dim: int, coordinate: Sequence[int], place: str) -> tuple[Cut, ...]:
    cuts: list[Cut] = []
    for mesh_dim, placement in enumerate(value.placements):
        if placement.is_partial():
            raise ValueError(
                f"'{place}' has partial results ({placement}): redistribute() it to Replicate() or Shard()"
            )
        if placement.is_replicate() or placement.dim % value.ndim != dim:
            continue
        cuts.append((value.device_mesh.size(mesh_dim), coordinate[mesh_dim], getattr(placement, "split_factor", 1)))
    return tuple(cuts)


@lru_cache(maxsize=4096)
def _runs(size: int, cuts: tuple[Cut, ...]) -> list[Run]:
    runs = [(0, size)]
    for count, index, before in _in_order(cuts):
        pieces = [_chunk(runs, before, i) for i in range(before)] if before > 1 else [runs]
        runs = [run for piece in pieces for run in _chunk(piece, count, index)]
    return runs


def _in_order(cuts: tuple[Cut, ...]) -> list[Cut]:
    """With fully_shard over tensor parallelism, later splits are applied first."""
    order: list[Cut] = []
    for place, (count, index, before) in reversed(list(enumerate(cuts))):
        later = math.prod(count for count, _, _ in cuts[place + 1 :])
        after = before > 1 and before == later
        order = [*order, (count, index, 1)] if after else [(count, index, before), *order]
    return order


def _chunk(runs: list[Run], count: int, index: int) -> list[Run]:
    """Splits like torch.chunk: all parts are equal except the last ones, which may be smaller or empty."""
    total = sum(length for _, length in runs)
    each = -(-total // count)
    first, last = min(index * each, total), min((index + 1) * each, total)
    chosen = []
    for (start, length), at in zip(runs, _starts(runs), strict=True):
        begin, end = max(first, at), min(last, at + length)
        if begin < end:
            chosen.append((start + begin - at, end - begin))
    return chosen


def _starts(runs: list[Run]) -> list[int]:
    return [0, *accumulate(length for _, length in runs)][:-1]
