"""The threads of gloo's process groups, which must be idle before a group is destroyed.

Torch 2.13 joins them while it holds the GIL, and a thread that releases its last collective may wait for the GIL: the
process deadlocks. This happens under load when a function returns right after a collective.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from trireme._patches import wrap

_NAME = "pt_gloo_runloop"
_PATIENCE_S = 1.0


def wait_for_gloo_threads() -> None:
    """Waits until the threads are idle, for a limited time: a collective with a rank that has exited never ends."""
    deadline = time.monotonic() + _PATIENCE_S
    while not all(map(_is_idle, _gloo_threads())) and time.monotonic() < deadline:
        time.sleep(0.0005)  # releases the GIL


def guard_destroy(dist: Any) -> None:
    """For scripts that destroy their process group themselves."""

    def destroy_process_group(original: Any, *arguments: Any, **options: Any) -> None:
        wait_for_gloo_threads()
        original(*arguments, **options)

    if hasattr(dist, "destroy_process_group"):  # not in every torch
        wrap(dist, "destroy_process_group", destroy_process_group)


def _gloo_threads() -> list[Path]:
    found = []
    for task in Path("/proc/self/task").iterdir():
        try:
            if (task / "comm").read_text().strip() == _NAME:
                found.append(task)
        except OSError:  # it has ended
            continue
    return found


def _is_idle(task: Path) -> bool:
    """Whether it waits in a futex without a timeout. A wait for the GIL has a timeout of a few milliseconds."""
    try:
        call = (task / "syscall").read_text().split()
    except OSError:
        return True  # it has ended, or the kernel does not show it
    return len(call) > 4 and call[4] == "0x0"
