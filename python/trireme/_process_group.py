"""Ends torch's process groups, even if their initialisation did not finish. Does not import torch."""

from __future__ import annotations

import sys
from typing import Any


def end_process_group() -> None:
    """Closes the connections to other ranks: a rank that waits for this one in a collective gets an error."""
    dist = _distributed()
    if dist is None:
        return
    if dist.is_initialized():
        dist.destroy_process_group()
    else:
        _reset_count(dist)


def abort_collectives() -> None:
    """Ends the collectives that threads of this process wait in. Can be called on any thread: the groups stay
    registered, because the function may use them.

    Only NCCL supports it. Collectives of Gloo end when the other rank does.
    """
    dist = _distributed()
    if dist is None or not dist.is_initialized():
        return
    names = dict(dist.distributed_c10d._world.pg_names)
    groups = sorted(names, key=lambda group: str(names[group]), reverse=True)
    # As torch's _abort_process_group(), which also unregisters the groups: in the same order on every rank, and inside
    # of NCCL's group calls, so that the aborts of several communicators do not wait for each other.
    nccl = _nccl_backend(dist)
    if nccl is not None:
        nccl._group_start()
    errors = []
    for group in groups:
        try:
            if hasattr(group, "abort"):  # since torch 2.6
                group.abort()
        except Exception as error:  # the others must be aborted even so
            errors.append(error)
    if nccl is not None:
        nccl._group_end()
    if errors:
        raise errors[0]


def abort_process_group() -> None:
    """Like end_process_group(), for groups with a rank that has exited: destroying a group waits for its collectives,
    which then never end.
    """
    dist = _distributed()
    if dist is None:
        return
    abort = getattr(dist.distributed_c10d, "_abort_process_group", None)
    if dist.is_initialized() and abort is not None:
        abort()
    else:
        end_process_group()


def _distributed() -> Any:
    dist = sys.modules.get("torch.distributed")
    # Without the function, this torch has no process groups, or another thread is still importing it.
    return dist if hasattr(dist, "is_initialized") else None


def _reset_count(dist: Any) -> None:
    """An interrupted init_process_group() has incremented a counter that is part of the rendezvous keys, and only
    destroying a complete group resets it: the next group of this process would wait for other keys than its peers set.
    (If torch has no such counter, the error ends this process and a new one replaces it.)
    """
    dist.distributed_c10d._world.group_count = 0


def _nccl_backend(dist: Any) -> Any:
    if not dist.is_nccl_available():
        return None
    import torch

    try:
        backend = dist.group.WORLD._get_backend(torch.device("cuda"))
    except RuntimeError:  # the default group has none for this device
        return None
    return backend if isinstance(backend, dist.ProcessGroupNCCL) else None
