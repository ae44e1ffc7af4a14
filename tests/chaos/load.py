"""Keeps all cores busy, so that processes at the lowest priority get little CPU time, and late."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

LOWEST, ABOVE_IT = 19, 10
# Checks regularly whether its parent is alive, so that it ends however the parent ended.
_SPIN = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(100_000):
        pass
"""


class Load:
    """Leaves about 12 % of a core for one process at the lowest priority, more for several."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Load:
        for _ in os.sched_getaffinity(0):
            self._processes.append(start([sys.executable, "-S", "-c", _SPIN, str(os.getpid())], ABOVE_IT))
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]


def start(command: list[str], nice: int, **options: Any) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(["nice", "-n", str(nice), *command], start_new_session=True, **options)
    set_session_priority(process.pid, nice)
    return process


def set_session_priority(pid: int, nice: int) -> None:
    """Each worker has its own session, and many kernels share the CPU among sessions before considering priorities.

    The load has the priority of any other session, so that scenarios get some CPU time if other programs run too.
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(max(0, nice - ABOVE_IT)))
