"""Tensors of which every rank holds a part, as boxes of the full tensor. The core computes with the boxes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from trireme import _core


class Box(NamedTuple):
    """A range of elements of a tensor: the offset and the size in each dimension."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]

    def within(self, outer: Box) -> tuple[slice, ...]:
        """The slices of this box in a tensor that has the elements of the outer box."""
        starts = [mine - its for mine, its in zip(self.offset, outer.offset, strict=True)]
        return tuple(slice(start, start + size) for start, size in zip(starts, self.shape, strict=True))

    def __str__(self) -> str:
        ranges = [f"{start}:{start + size}" for start, size in zip(self.offset, self.shape, strict=True)]
        return f"[{', '.join(ranges)}]"


class Part(NamedTuple):
    box: Box
    tensor: Any
    rank: int | None = None  # the rank that stored it


@dataclass(frozen=True)
class ShardedTensor:
    """A tensor and its available parts. dtype: a name from docs/state_format.md."""

    shape: tuple[int, ...]
    dtype: str
    parts: list[Part]

    @property
    def whole(self) -> Box:
        return Box((0,) * len(self.shape), self.shape)

    def overlaps(self, wanted: Box) -> list[tuple[Box, Part]]:
        found = _core.box_overlaps(wanted, [part.box for part in self.parts])
        return [(Box(*common), self.parts[index]) for index, common in found]

    def gap_in(self, wanted: Box) -> Box | None:
        """A box that no part covers, or None."""
        gap = _core.box_gap(wanted, [part.box for part in self.parts])
        return None if gap is None else Box(*gap)

    def copy_to(self, target: Any, place: Box) -> None:
        """Copies the parts into a tensor that has the elements of `place`."""
        for common, part in self.overlaps(place):
            target[common.within(place)] = part.tensor[common.within(part.box)]


def has_shards(tree: Any) -> bool:
    return next(each_sharded_tensor(tree), None) is not None


def each_sharded_tensor(tree: Any) -> Iterator[ShardedTensor]:
    if isinstance(tree, ShardedTensor):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from each_sharded_tensor(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from each_sharded_tensor(value)


def merged(trees: list[Any], place: str = "") -> Any:
    """Merges the states of several ranks: parts are combined, any other value is taken from the first rank."""
    first = trees[0]
    if all(isinstance(tree, dict) for tree in trees):
        keys = {key: None for tree in trees for key in tree}
        return {key: merged([tree[key] for tree in trees if key in tree], below(place, key)) for key in keys}
    if isinstance(first, (list, tuple)):
        alike = [tree for tree in trees if type(tree) is type(first) and len(tree) == len(first)]
        return type(first)(merged(list(items), below(place, i)) for i, items in enumerate(zip(*alike, strict=True)))
    if isinstance(first, ShardedTensor):
        for other in trees[1:]:
            if not isinstance(other, ShardedTensor) or (other.shape, other.dtype) != (first.shape, first.dtype):
                raise ValueError(
                    f"'{place}' of the state is {kind_of(first)} on one rank and {kind_of(other)} on another"
                )
        return ShardedTensor(first.shape, first.dtype, [part for tree in trees for part in tree.parts])
    return first


def assembled(tree: Any, make: Callable[[ShardedTensor], Any], place: str = "") -> Any:
    """Replaces parts with full tensors."""
    if isinstance(tree, dict):
        return {key: assembled(value, make, below(place, key)) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(assembled(value, make, below(place, i)) for i, value in enumerate(tree))
    if not isinstance(tree, ShardedTensor):
        return tree
    if gap := tree.gap_in(tree.whole):
        raise ValueError(describe_gap(place, tree, gap))
    for part in tree.parts:
        if part.box == tree.whole:
            return part.tensor
    target = make(tree)
    tree.copy_to(target, tree.whole)
    return target


def describe_gap(place: str, shards: ShardedTensor, gap: Box) -> str:
    ranks = sorted({part.rank for part in shards.parts if part.rank is not None})
    stored = f"only ranks {', '.join(map(str, ranks))} have stored parts" if ranks else "no rank has stored a part"
    return (
        f"'{place}' {kind_of(shards)} is incomplete: {gap} is missing, {stored}; load a checkpoint that every rank has "
        "reported with report()"
    )


def below(place: str, key: Any) -> str:
    return f"{place}/{key}" if place else str(key)


def kind_of(value: Any) -> str:
    if isinstance(value, ShardedTensor):
        return f"{value.shape} {value.dtype}"
    return f"a {type(value).__name__}"
