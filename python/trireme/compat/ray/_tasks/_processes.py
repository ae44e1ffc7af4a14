"""The broker's end of other processes."""

from __future__ import annotations

import contextlib
import pickle
import secrets
import socket
import threading
from collections.abc import Callable
from typing import Any

from trireme._process_host import Ended, Host
from trireme.compat.ray._tasks._records import Actor, Task
from trireme.compat.ray._tasks._resources import Resources
from trireme.compat.ray._tasks._wire import Connection, Gone


class Peer:
    """A connection of any process of the script."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.process: Process | None = None  # if the broker has started it

    def send(self, *message: Any) -> None:
        with contextlib.suppress(Gone):  # its values are not needed any more
            self.connection.send(*message)


class Process:
    """A process of a task or an actor."""

    def __init__(self, sock: socket.socket, process_id: str, holder: Task, resources: dict[str, float]) -> None:
        self.id = process_id
        self.sock = sock  # closing it kills the process
        self.task: Task | None = None
        self.actor: Actor | None = None
        self.how = "was lost with the warm process that it was forked from"
        self._peer: Peer | None = None
        self._early: list[tuple[Any, ...]] = []
        self._held = dict(holder.resources)
        self._lent: dict[str, float] = {}
        self._lending = 0
        self._resources: Resources | None = None

    @classmethod
    def start(cls, host: Host, setup: bytes, path: str, holder: Task) -> Process:
        process_id = secrets.token_hex(8)
        sock = host.fork(pickle.dumps((setup, path, process_id, holder.resources)))
        return cls(sock, process_id, holder, holder.resources)

    def attach(self, peer: Peer) -> None:
        self._peer = peer
        for message in self._early:
            peer.send(*message)
        self._early.clear()

    def post(self, *message: Any) -> None:
        if self._peer is None:
            self._early.append(message)
        else:
            self._peer.send(*message)

    def kill(self) -> None:
        self.how = "was killed"
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)  # its host sees that nobody waits for it

    def lend(self, resources: Resources) -> bool:
        """Its CPUs are free while it waits."""
        cpus = self._held.get("CPU", 0.0)
        if not cpus:
            return False
        self._lending += 1
        if self._lending == 1:
            self._lent = {"CPU": cpus}
            self._resources = resources
            resources.add(self._lent, 1)
        return True

    def reclaim(self) -> None:
        """Also if another task has them now: both run for a moment, as in Ray."""
        self._lending -= 1
        if self._lending == 0 and self._resources is not None:
            self._resources.add(self._lent, -1)
            self._lent = {}

    def give_back(self, resources: Resources) -> None:
        if self._lent:
            resources.add(self._lent, -1)
            self._lent = {}
        resources.add(self._held, 1)
        self._held = {}


def watch(process: Process, ended: Callable[[Process, str], None]) -> None:
    """Calls `ended` on a thread of its own when the process has exited."""

    def wait() -> None:
        with contextlib.suppress(OSError, EOFError):
            if data := process.sock.recv(1 << 12):
                told: Ended = pickle.loads(data)
                process.how = told.how()
        process.sock.close()
        ended(process, process.how)

    threading.Thread(target=wait, daemon=True).start()
