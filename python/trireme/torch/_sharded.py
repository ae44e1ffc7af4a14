"""save_sharded() and load_sharded(): every worker stores its part of a state, and any number of workers can load it."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from trireme._checkpoint import Checkpoint, _temporary_directory
from trireme._parts import load_part, ranks_in
from trireme._sharded_tensors import Box, Part, ShardedTensor, below, describe_gap, merged
from trireme._state import dtype_name, plain_dtype, save_state
from trireme._storage import Location
from trireme.torch._group import gathered
from trireme.torch._layout import boxes_of, is_dtensor, local_of, turn, writes

_SHOWN = 8

# Path in the state -> shape and type.
Kinds = dict[str, str]


def save_sharded(state: dict[Any, Any]) -> Checkpoint:
    """Return a checkpoint with this worker's part of a state, for report(). Every worker must call both functions.

    Each worker stores its part of a DTensor; a part that several workers hold is stored by one of them. Other tensors
    with the same name must be equal on all workers that have them, and are stored by one of these workers.
    """
    if not isinstance(state, dict):
        raise TypeError(f"save_sharded() expects a dict, got {type(state).__name__}")
    count, rank = _world()
    plain = {place: _kind(tensor) for place, tensor in _tensors(state) if not is_dtensor(tensor)}
    return _RankCheckpoint.from_dict(_parts_of(state, "", _mine(plain, count, rank), whole=count == 1))


def load_sharded(
    checkpoint: Checkpoint | str | os.PathLike[str],
    state: dict[Any, Any],
    *,
    strict: bool = True,
    allow_pickle: bool = True,
) -> None:
    """Load a checkpoint into a state, its tensors in place. Every worker must call it.

    The number of workers, the mesh and the placements may differ from those of the checkpoint: each worker reads only
    the files that overlap its part. If anything does not match, an error is raised and nothing is changed.

    strict: whether names that only the state or only the checkpoint has are an error.
    allow_pickle: False for an untrusted checkpoint.
    """
    if not isinstance(state, dict):
        raise TypeError(f"load_sharded() expects a dict to load into, got {type(state).__name__}")
    source = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
    if source._state is not None:  # not stored yet, in local mode for example
        _load(_Stored("", {}, [], allow_pickle), source._state, repr(source), state, strict)
        return
    memory = source._memory if source._where().local else {}
    with source.as_directory() as folder:
        own = _world()[1]
        # This rank's own part first: values that are not tensors are taken from it.
        ranks = sorted(ranks_in(folder, memory), key=lambda rank: (rank != own, rank))
        trees = [load_part(folder, rank, memory, allow_pickle=allow_pickle, verify=False) for rank in ranks]
        _load(_Stored(folder, memory, ranks, allow_pickle), merged(trees), source.path, state, strict)


class _RankCheckpoint(Checkpoint):
    """If it is written to a directory, the files of rank r are in rank_<r>/ there as well."""

    def _where(self) -> Location:
        if self._location is None:
            assert self._state is not None
            folder, rank = _temporary_directory(keep=False), _world()[1]
            inside = os.path.join(folder, f"rank_{rank}") if rank else folder
            save_state(inside, self._state, allow_pickle=self._allow_pickle)
            self._location, self._state = Location(folder), None
        return self._location


@dataclass
class _Stored:
    folder: str
    memory: Mapping[str, str]
    ranks: list[int]
    allow_pickle: bool

    def verify(self, read: set[int | None]) -> None:
        """Verifies the files of these ranks and of the first one. None: an unknown rank, so verify all."""
        for rank in self.ranks:
            if None in read or rank in (self.ranks[0], *read):
                load_part(self.folder, rank, self.memory, allow_pickle=self.allow_pickle)


class _Copy(NamedTuple):
    """A copy from the stored tensor to this worker's part of it."""

    place: str
    target: Any
    boxes: list[tuple[Box, tuple[slice, ...]]]
    shards: ShardedTensor

    def gap(self) -> Box | None:
        return next((gap for box, _ in self.boxes if (gap := self.shards.gap_in(box)) is not None), None)

    def ranks(self) -> set[int | None]:
        """The ranks whose files it reads."""
        return {part.rank for box, _ in self.boxes for _, part in self.shards.overlaps(box)}

    def run(self) -> None:
        local = local_of(self.target)
        for box, where in self.boxes:
            self.shards.copy_to(local[where], box)


@dataclass
class _Plan:
    """The changes to make, and the problems that prevent them."""

    copies: list[_Copy] = field(default_factory=list)
    changes: list[Callable[[], None]] = field(default_factory=list)  # of values that are not tensors
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)


def _load(stored: _Stored, tree: Any, name: str, state: dict[Any, Any], strict: bool) -> None:
    plan = _Plan()
    _compare(plan, state, tree, "")
    gaps = ((copy, copy.gap()) for copy in plan.copies)
    plan.different += [describe_gap(copy.place, copy.shards, gap) for copy, gap in gaps if gap is not None]
    _raise_together(plan, name, strict)
    stored.verify(set().union(*(copy.ranks() for copy in plan.copies)))
    with torch.no_grad():
        for copy in plan.copies:
            copy.run()
    for change in plan.changes:
        change()


def _compare(plan: _Plan, mine: Any, stored: Any, place: str) -> None:
    """Compares two dicts or two lists. Only the names of tensors must match."""
    here, there = [tree if isinstance(tree, dict) else dict(enumerate(tree)) for tree in (mine, stored)]
    for key in here:
        if key in there:
            _compare_values(plan, mine, key, there[key], below(place, key))
        else:
            plan.missing += _names(here[key], below(place, key))
    for key in there:
        if key not in here:
            plan.unexpected += _names(there[key], below(place, key))


def _names(tree: Any, place: str) -> list[str]:
    """The names of the tensors in it, or its own."""
    return [name for name, _ in _tensors(tree, place)] or [place]


def _compare_values(plan: _Plan, container: Any, key: Any, stored: Any, place: str) -> None:
    mine = container[key]
    tensors = _is_tensor(mine), _is_tensor(stored)
    if all(tensors):
        if (ours := _kind(mine)) != (theirs := _kind(stored)):
            plan.different.append(f"{place}: stored {theirs}, the state has {ours}")
        elif mine.is_meta:
            plan.different.append(f"{place} is on the meta device and has no memory: materialize the model first")
        else:
            plan.copies.append(_Copy(place, mine, boxes_of(mine, place), _as_shards(stored)))
        return
    if not any(True for tree in (mine, stored) for _ in _tensors(tree, place)):
        plan.changes.append(lambda: container.__setitem__(key, stored))
    elif any(tensors) or not _same_kind(mine, stored):
        plan.different.append(f"{place}: stored {_kind(stored)}, the state has {_kind(mine)}")
    elif isinstance(mine, tuple):
        copy = list(mine)
        _compare(plan, copy, stored, place)
        plan.changes.append(lambda: container.__setitem__(key, tuple(copy)))
    else:
        _compare(plan, mine, stored, place)


def _raise_together(plan: _Plan, name: str, strict: bool) -> None:
    """Raises the same error on all workers. A name is unexpected only if no worker has it: in a pipeline the workers
    have different names."""
    mine = (plan.different + [f"missing: {place}" for place in plan.missing if strict], plan.unexpected)
    every = gathered(mine) if _world()[0] > 1 else [mine]
    ranks: dict[str, list[int]] = {}
    for rank, (problems, _) in enumerate(every):
        for problem in problems:
            ranks.setdefault(problem, []).append(rank)
    lines = [
        problem if len(where) == len(every) else f"{problem} (on rank {', '.join(map(str, where))})"
        for problem, where in ranks.items()
    ]
    nobodys = Counter(place for _, unexpected in every for place in unexpected)
    lines += [f"unexpected: {place}" for place, count in nobodys.items() if strict and count == len(every)]
    if not lines:
        return
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    raise ValueError(
        f"load_sharded(): {name} does not fit the state to load into:\n  " + "\n  ".join(lines[:_SHOWN] + more)
    )


def _mine(plain: Kinds, count: int, rank: int) -> set[str]:
    """The plain tensors that this rank stores: each tensor is stored by one of the ranks that have it."""
    if count == 1:
        return set(plain)
    # Almost always equal: exchange a digest first.
    digest = hashlib.sha256(repr(sorted(plain.items())).encode()).hexdigest()
    if len(set(gathered(digest))) == 1:
        return {place for place in plain if turn(place, count) == rank}
    every: list[Kinds] = gathered(plain)
    found = set()
    for place, kind in plain.items():
        having = [other for other, kinds in enumerate(every) if place in kinds]
        for other in having:
            if every[other][place] != kind:
                raise ValueError(
                    f"save_sharded(): '{place}' is {kind} on rank {rank} and {every[other][place]} on rank {other}; "
                    f"use a different name on each rank for values that differ, for example '{place}/{rank}'"
                )
        if having[turn(place, len(having))] == rank:
            found.add(place)
    return found


def _parts_of(tree: Any, place: str, mine: set[str], whole: bool) -> Any:
    if isinstance(tree, dict):
        return {key: _parts_of(value, below(place, key), mine, whole) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(_parts_of(value, below(place, i), mine, whole) for i, value in enumerate(tree))
    if not isinstance(tree, torch.Tensor):
        return tree
    boxes, local = boxes_of(tree, place), local_of(tree)
    if whole:  # the only worker
        return local
    stores = writes(tree, place) if is_dtensor(tree) else place in mine
    parts = [Part(box, local[where]) for box, where in boxes if stores and 0 not in box.shape]
    return ShardedTensor(tuple(tree.shape), dtype_name(tree.dtype), parts)


def _tensors(tree: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if _is_tensor(tree):
        yield place, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from _tensors(value, below(place, key))
    elif isinstance(tree, (list, tuple)):
        for index, value in enumerate(tree):
            yield from _tensors(value, below(place, index))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, ShardedTensor))


def _as_shards(stored: Any) -> ShardedTensor:
    if isinstance(stored, ShardedTensor):
        return stored
    shape = tuple(stored.shape)
    return ShardedTensor(shape, dtype_name(stored.dtype), [Part(Box((0,) * len(shape), shape), local_of(stored))])


def _same_kind(mine: Any, stored: Any) -> bool:
    return any(isinstance(mine, kind) and isinstance(stored, kind) for kind in (dict, list, tuple))


def _kind(value: Any) -> str:
    if not _is_tensor(value):
        return f"a {type(value).__name__}"
    dtype = value.dtype if isinstance(value, ShardedTensor) else dtype_name(value.dtype)
    return f"{tuple(value.shape)} {plain_dtype(dtype)}"


def _world() -> tuple[int, int]:
    """The number of workers and this worker's rank."""
    if not (dist.is_available() and dist.is_initialized()):
        return 1, 0
    return dist.get_world_size(), dist.get_rank()
