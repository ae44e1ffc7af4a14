"""Inspects and manipulates the processes of a scenario through /proc."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

_PIDFD_GETFD = 438
_libc = ctypes.CDLL(None, use_errno=True)


def wait_until(condition: Callable[[], object], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def marked(mark: str) -> dict[int, str]:
    """Command lines of the live processes that have inherited this variable."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            folder = Path("/proc", name)
            if mark.encode() in (folder / "environ").read_bytes() and state(int(name)) != "Z":
                found[int(name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return found


def state(pid: int) -> str:
    """R, S, T, Z...; empty if the process does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def zygote_of(driver: int) -> int | None:
    for child in children(driver):
        with contextlib.suppress(OSError):
            if b"trireme._zygote" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
    return None


def agents(mark: str) -> list[int]:
    """The agents of nodes, which have forked or executed all other processes there."""
    found = []
    for pid in sorted(marked(mark)):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "trireme-agent\n":
                found.append(pid)
    return found


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def pause(pid: int, seconds: float) -> None:
    """Data sent to the process waits during the pause."""
    send(pid, signal.SIGSTOP)
    time.sleep(seconds)
    send(pid, signal.SIGCONT)


def freeze(mark: str, seconds: float, dice: random.Random) -> None:
    """Stops all processes of a scenario, as a suspended laptop does, and lets them continue in any order."""
    stopped: set[int] = set()
    while running := sorted(marked(mark).keys() - stopped):  # including processes forked in the meantime
        dice.shuffle(running)
        for pid in running:
            send(pid, signal.SIGSTOP)
        stopped.update(running)
    time.sleep(seconds)
    for pid in dice.sample(sorted(stopped), len(stopped)):
        send(pid, signal.SIGCONT)


def cut_connections(pid: int) -> int:
    """Shuts down the process's connections to the controller from outside."""
    cut = 0
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(pid)
        for name in os.listdir(f"/proc/{pid}/fd"):
            if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                continue
            copy = _libc.syscall(_PIDFD_GETFD, handle, int(name), 0)
            if copy < 0:
                continue
            with socket.socket(fileno=copy) as connection:
                if is_ours(connection):
                    connection.shutdown(socket.SHUT_RDWR)
                    cut += 1
        os.close(handle)
    return cut


def is_ours(connection: socket.socket) -> bool:
    """Decided by the peer address. TCP connects to the controller or, with torch, to other ranks: both are cut."""
    with contextlib.suppress(OSError):
        peer = connection.getpeername()
        # A str if the peer has no name or a path, as the warm process has.
        return connection.family == socket.AF_INET or (isinstance(peer, bytes) and peer.startswith(b"\0trireme-"))
    return False
