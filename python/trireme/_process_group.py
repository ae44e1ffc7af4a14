"""The end of torch's process group, also of one that was never finished. Needs no torch where the script has none."""

from __future__ import annotations

import sys


def end_process_group() -> None:
    """Connections to ranks that are gone go; those who still wait for this one in a collective notice."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available():
        return
    if dist.is_initialized():
        dist.destroy_process_group()
        return
    # An init_process_group() that was left halfway has taken a number, which is part of the keys of the rendezvous, and
    # only the end of a whole group gives it back: the next group of this process would wait for other keys than its new
    # peers set. (Where torch has no such counter, the error makes a process that was to be kept end, and a new one take
    # its place.)
    dist.distributed_c10d._world.group_count = 0
