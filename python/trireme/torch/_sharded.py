"""save_sharded() and load_sharded(): states of which every worker stores its part, and any number of workers load."""

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
from trireme.torch._layout import boxes_of, is_dtensor, local_of, turn, writes

_SHOWN = 8

# Place in the state -> shape and type.
Kinds = dict[str, str]


def save_sharded(state: dict[Any, Any]) -> Checkpoint:
    """A checkpoint with this worker's part of a state, for report(); every worker has to call both.

    Of DTensors each worker stores what it holds; what several hold is stored by one of them. Other tensors count as
    equal on all workers that have them under one name, and one of these stores it.
    """
    if not isinstance(state, dict):
        raise TypeError(f"save_sharded() takes a dict, got {type(state).__name__}")
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
    """Replace the values of a state by those of a checkpoint, its tensors in place; every worker has to call it.

    The number of workers, the mesh and the placements may be others than those that stored it: each reads only what
    overlaps its part. Nothing is changed where something does not fit.

    strict: names that only one of both has are an error.
    allow_pickle: False for a checkpoint that you do not trust.
    """
    if not isinstance(state, dict):
        raise TypeError(f"load_sharded() takes a dict to load into, got {type(state).__name__}")
    source = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
    if source._state is not None:  # not stored yet, in local mode for example
        _load(_Stored("", {}, [], allow_pickle), source._state, repr(source), state, strict)
        return
    memory = source._memory if source._where().local else {}
    with source.as_directory() as folder:
        own = _world()[1]
        # One's own comes first: what is no tensor counts as each has stored it.
        ranks = sorted(ranks_in(folder, memory), key=lambda rank: (rank != own, rank))
        trees = [load_part(folder, rank, memory, allow_pickle=allow_pickle, verify=False) for rank in ranks]
        _load(_Stored(folder, memory, ranks, allow_pickle), merged(trees), source.path, state, strict)


class _RankCheckpoint(Checkpoint):
    """Where it has to become a directory, rank r's files are in rank_<r>/ there as well."""

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
        """That the files of these ranks, and of the first, are as they were stored. None: of one that is not known."""
        for rank in self.ranks:
            if None in read or rank in (self.ranks[0], *read):
                load_part(self.folder, rank, self.memory, allow_pickle=self.allow_pickle)


class _Copy(NamedTuple):
    """Of what is stored into the parts that this worker has of a tensor."""

    place: str
    target: Any
    boxes: list[tuple[Box, tuple[slice, ...]]]
    shards: ShardedTensor

    def gap(self) -> Box | None:
        return next((gap for box, _ in self.boxes if (gap := self.shards.gap_in(box)) is not None), None)

    def ranks(self) -> set[int | None]:
        """Whose files it reads."""
        return {part.rank for box, _ in self.boxes for _, part in self.shards.overlaps(box)}

    def run(self) -> None:
        local = local_of(self.target)
        for box, where in self.boxes:
            self.shards.copy_to(local[where], box)


@dataclass
class _Plan:
    """What is to be done, and why it cannot be."""

    copies: list[_Copy] = field(default_factory=list)
    changes: list[Callable[[], None]] = field(default_factory=list)  # of what is no tensor
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
    """Two dicts, or two lists. Names have to be the same only where there are tensors."""
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
    """Of the tensors in it, or of itself."""
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
    """The same error on all workers. A name is unexpected where no worker has it: in a pipeline each has its own."""
    mine = (plan.different + [f"missing: {place}" for place in plan.missing if strict], plan.unexpected)
    every = _gather(mine) if _world()[0] > 1 else [mine]
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
    """Which of the tensors that are no DTensors this rank stores: each is stored by one of those that have it."""
    if count == 1:
        return set(plain)
    # Almost always equal: a digest is enough to know that.
    digest = hashlib.sha256(repr(sorted(plain.items())).encode()).hexdigest()
    if len(set(_gather(digest))) == 1:
        return {place for place in plain if turn(place, count) == rank}
    every: list[Kinds] = _gather(plain)
    found = set()
    for place, kind in plain.items():
        having = [other for other, kinds in enumerate(every) if place in kinds]
        for other in having:
            if every[other][place] != kind:
                raise ValueError(
                    f"save_sharded(): '{place}' is {kind} on rank {rank} and {every[other][place]} on rank {other}; "
                    f"what is not the same on all ranks needs a name of its own on each, '{place}/{rank}' for example"
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
    if whole:  # nobody else has a part
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
    """How many workers there are, and which one this is."""
    if not (dist.is_available() and dist.is_initialized()):
        return 1, 0
    return dist.get_world_size(), dist.get_rank()


def _gather(value: Any) -> list[Any]:
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values
