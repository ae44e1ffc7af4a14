"""Finds every process that a test left running, by an environment variable that all its descendants inherit."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

MARK = f"TRIREME_TEST_SESSION={uuid.uuid4().hex}"
os.environ.update([MARK.split("=")])


class Process(NamedTuple):
    pid: int
    parent: int
    state: str
    command: str


def _read(pid: int) -> Process | None:
    folder = Path("/proc") / str(pid)
    try:
        if MARK.encode() not in (folder / "environ").read_bytes():
            return None
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        state, parent = (folder / "stat").read_text().rpartition(") ")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return Process(pid, int(parent), state, command.strip())


def marked() -> list[Process]:
    """All processes of this test session except the current one."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    found = [_read(pid) for pid in pids if pid != os.getpid()]
    return [process for process in found if process and process.state != "Z"]


def is_guard(process: Process) -> bool:
    """The shell that kills executed workers when their driver is killed."""
    return process.command.endswith(" trireme-guard")


def left_over() -> list[Process]:
    """The processes that no test may leave running: all except this process's own zygote and guard."""
    return [p for p in marked() if not (p.parent == os.getpid() and ("trireme._zygote" in p.command or is_guard(p)))]


def wait_until(condition: Callable[[], object], timeout: float = 60.0) -> bool:
    """The timeout only ends a hang: under load an operation may take seconds instead of milliseconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
