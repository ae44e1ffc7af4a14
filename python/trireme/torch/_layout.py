"""Where the elements of a DTensor lie: which boxes of the whole tensor this rank holds, and who writes them."""

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

# A run of neighbours in one dimension: where it begins, how long it is.
Run = tuple[int, int]
# A mesh dimension that cuts this one: into how many, which one is ours, after how many cuts that count as made before.
Cut = tuple[int, int, int]


def is_dtensor(value: Any) -> bool:
    return isinstance(value, DTensor)


def local_of(value: Any) -> torch.Tensor:
    """The tensor that this rank holds; of a plain one, itself."""
    tensor: torch.Tensor = value.detach()
    return tensor.to_local() if is_dtensor(tensor) else tensor


def boxes_of(value: Any, place: str) -> list[tuple[Box, tuple[slice, ...]]]:
    """This rank's part as boxes of the whole, each with its place in the local tensor."""
    shape = tuple(value.shape)
    if not is_dtensor(value):
        return [(Box((0,) * len(shape), shape), tuple(slice(0, size) for size in shape))]
    coordinate = value.device_mesh.get_coordinate()
    if coordinate is None:  # of another part of the workers
        return []
    runs = [_runs(size, _cuts(value, dim, coordinate, place)) for dim, size in enumerate(shape)]
    held = tuple(sum(length for _, length in each) for each in runs)
    local = tuple(local_of(value).shape)
    if held != local and 0 not in (math.prod(held), math.prod(local)):
        raise ValueError(
            f"'{place}': this rank holds {local} of {shape}, and by its placements {value.placements} it would hold "
            f"{held}; store full_tensor() of it"
        )
    if 0 in held:
        return []
    boxes = []
    for chosen in product(*(zip(each, _starts(each), strict=True) for each in runs)):
        box = Box(tuple(run[0] for run, _ in chosen), tuple(run[1] for run, _ in chosen))
        boxes.append((box, tuple(slice(start, start + run[1]) for run, start in chosen)))
    return boxes


def writes(value: Any, place: str) -> bool:
    """Whether this rank is the one of those with the same part that stores it: another one for each tensor."""
    mesh, coordinate = value.device_mesh, value.device_mesh.get_coordinate()
    if coordinate is None:
        return False
    copies = [dim for dim, placement in enumerate(value.placements) if placement.is_replicate()]
    number = 0
    for dim in copies:
        number = number * mesh.size(dim) + coordinate[dim]
    return number == turn(place, math.prod(mesh.size(dim) for dim in copies))


def turn(place: str, count: int) -> int:
    """Which of `count` that could; the same answer on every rank."""
    return zlib.crc32(place.encode()) % count


def _cuts(value: Any, dim: int, coordinate: Sequence[int], place: str) -> tuple[Cut, ...]:
    cuts: list[Cut] = []
    for mesh_dim, placement in enumerate(value.placements):
        if placement.is_partial():
            raise ValueError(
                f"'{place}' is a DTensor of partial results ({placement}): redistribute() it to Replicate() or Shard()"
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
    """fully_shard over tensor parallel counts the cuts that stand later as made before; so they come first."""
    order: list[Cut] = []
    for place, (count, index, before) in reversed(list(enumerate(cuts))):
        later = math.prod(count for count, _, _ in cuts[place + 1 :])
        after = before > 1 and before == later
        order = [*order, (count, index, 1)] if after else [(count, index, before), *order]
    return order


def _chunk(runs: list[Run], count: int, index: int) -> list[Run]:
    """As torch.chunk cuts: all equal but the last ones, which may be smaller or empty."""
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
