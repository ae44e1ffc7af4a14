"""Destroys torch's process group, even if its initialisation did not finish. Does not import torch."""

from __future__ import annotations

import sys


def end_process_group() -> None:
    """Closes the connections to other ranks: a rank that waits for this one in a collective gets an error."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available():
        return
    if dist.is_initialized():
        dist.destroy_process_group()
        return
    # An interrupted init_process_group() has incremented a counter that is part of the rendezvous keys, and only
    # destroying a complete group resets it: the next group of this process would wait for other keys than its peers
    # set. (If torch has no such counter, the error ends this process and a new one replaces it.)
    dist.distributed_c10d._world.group_count = 0
