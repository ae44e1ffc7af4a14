"""Keeps all cores busy, so that what runs at the lowest priority beside it gets little of them, and late."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

LOWEST, ABOVE_IT = 19, 10
# Looks now and then whether the process that has started it is there: then it ends in time, however that one has ended.
_SPIN = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(100_000):
        pass
"""


class Load:
    """About 12 % of a core are left for one process at the lowest priority, more for several."""

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
    """Workers have a session each, and many kernels share the CPU among sessions before they look at priorities.

    The load is as important as any other session, so that scenarios get something where others want the CPU too.
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(max(0, nice - ABOVE_IT)))
