"""Yields the CPU to training processes during work that is not urgent."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator

# Alternates between working for _WORK_S and yielding for _WAY_MS.
_WORK_S = 0.01
_WAY_MS = 50


@contextlib.contextmanager
def giving_way(poll: select.poll) -> Iterator[None]:
    """Yields the CPU to training processes until `poll` has an event. A lower priority would be inherited by all
    children."""
    looking = False

    def look(*_: object) -> None:
        # The next signal may arrive while this one waits, and a nested poll() raises. An exception here would interrupt
        # the current import.
        nonlocal looking
        if looking:
            return
        looking = True
        if _runnable() > len(os.sched_getaffinity(0)):
            poll.poll(_WAY_MS)
        looking = False

    before = signal.signal(signal.SIGPROF, look)
    signal.siginterrupt(signal.SIGPROF, False)  # native code may not handle interrupted system calls
    signal.setitimer(signal.ITIMER_PROF, _WORK_S, _WORK_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _runnable() -> int:
    """The number of runnable threads on this machine, including the current one."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/loadavg") as file:
        return int(file.read().split()[3].partition("/")[0])
    return 0
