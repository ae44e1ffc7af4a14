"""A state written by several ranks: the part of rank 0 is at the top level, that of rank r in rank_<r>/."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, cast

from trireme import _core
from trireme._sharded_tensors import each_sharded_tensor

_FILES = ("state.json", "state.safetensors")


def ranks_in(folder: str, memory: Mapping[str, str]) -> list[int]:
    """The ranks that have stored a state. memory: files in this machine's memory, name -> path to open."""
    names = [*memory, *(os.listdir(folder) if os.path.isdir(folder) else ())]
    found = (re.match(r"rank_(\d+)(/|$)", name) for name in names)
    return sorted({0} | {int(match[1]) for match in found if match})


def _in_memory(rank: int, memory: Mapping[str, str]) -> dict[str, str]:
    prefix = f"rank_{rank}/" if rank else ""
    return {name: memory[prefix + name] for name in _FILES if prefix + name in memory}


def load_part(
    folder: str, rank: int, memory: Mapping[str, str], *, allow_pickle: bool, mmap: bool = True, verify: bool = True
) -> dict[Any, Any]:
    """Loads the part of one rank. Without `verify`, tensors are read on access and checksums are not compared."""
    inside = os.path.join(folder, f"rank_{rank}") if rank else folder
    elsewhere = _in_memory(rank, memory)
    if not elsewhere and not os.path.exists(inside):
        raise FileNotFoundError(f"no state in {inside}: no such file or directory")
    state = _core.load_state(inside, allow_pickle, mmap, os.path.isfile(inside), elsewhere, verify)
    for shards in each_sharded_tensor(state):
        shards.parts[:] = [part._replace(rank=rank) for part in shards.parts]
    return cast("dict[Any, Any]", state)
