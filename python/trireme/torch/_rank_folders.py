"""A checkpoint whose files are written by all ranks, each into a folder of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from trireme._checkpoint import Checkpoint, _temporary_directory
from trireme.torch._group import gathered

_RECORD = "trireme_workers.json"


def saved_by_all_ranks(save: Callable[[str], object], record: dict[str, Any]) -> Checkpoint:
    """Calls save(folder) on every rank. report() merges the folders of all ranks into one checkpoint, which is
    committed when it has all of them, and deletes them.

    Frameworks expect a folder that all ranks share: a file that several ranks have written is taken from the first.
    record: stored beside the files, see record_of().
    """
    folder = _temporary_directory(keep=False)
    save(folder)
    rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    if rank == 0:
        with open(os.path.join(folder, _RECORD), "w", encoding="utf-8") as file:
            json.dump({**record, "workers": size}, file)
    if size > 1:
        mine = _files_in(folder)
        every = gathered(mine)
        for name in set(mine).intersection(*[set().union(*every[:rank])]):
            os.unlink(os.path.join(folder, name))
    made = Checkpoint.from_directory(folder)
    made._temporary = True
    return made


def record_of(folder: str) -> dict[str, Any]:
    """What saved_by_all_ranks() has recorded, with the number of `workers`. Empty: another program wrote them."""
    try:
        with open(os.path.join(folder, _RECORD), encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return {}
    return found


def _files_in(folder: str) -> list[str]:
    return [
        os.path.relpath(os.path.join(parent, name), folder) for parent, _, names in os.walk(folder) for name in names
    ]
