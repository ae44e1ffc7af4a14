"""The threads of gloo's process groups, which must be idle before a group ends.

Torch joins them while it holds the interpreter, and a thread that lets go of its last collective may wait for just
that: the process hangs for good (torch 2.13). A function that is over right after a collective meets with it on a busy
machine.
"""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

_NAME = "pt_gloo_runloop"
_PATIENCE_S = 1.0


def wait_for_gloo_threads() -> None:
    """Until they wait for work. Not long: one that is in a collective with a rank that is gone never does."""
    deadline = time.monotonic() + _PATIENCE_S
    while not all(map(_is_idle, _gloo_threads())) and time.monotonic() < deadline:
        time.sleep(0.0005)  # without the interpreter, so that they get it


def guard_destroy(dist: Any) -> None:
    """For scripts that end their process group themselves."""
    original = getattr(dist, "destroy_process_group", None)
    if original is None or hasattr(original, "waits_for_gloo"):  # torch without it; guarded by an earlier attempt
        return

    @functools.wraps(original)
    def destroy_process_group(*args: Any, **kwargs: Any) -> None:
        wait_for_gloo_threads()
        original(*args, **kwargs)

    destroy_process_group.waits_for_gloo = True  # type: ignore[attr-defined]
    dist.destroy_process_group = destroy_process_group


def _gloo_threads() -> list[Path]:
    found = []
    for task in Path("/proc/self/task").iterdir():
        try:
            if (task / "comm").read_text().strip() == _NAME:
                found.append(task)
        except OSError:  # it has ended meanwhile
            continue
    return found


def _is_idle(task: Path) -> bool:
    """In a futex without an end. Who waits for the interpreter looks up every few milliseconds."""
    try:
        call = (task / "syscall").read_text().split()
    except OSError:
        return True  # gone; or the kernel does not tell
    return len(call) > 4 and call[4] == "0x0"
