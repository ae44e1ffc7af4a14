"""What the broker knows about tasks, actors, their calls, and who waits for values."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trireme.compat.ray._tasks._processes import Peer, Process
    from trireme.compat.ray._tasks._resources import Resources
    from trireme.compat.ray._tasks._values import Stored


@dataclass(eq=False)
class Task:
    """A call of a function, or of the constructor of an actor, in a process of its own."""

    id: str
    name: str
    function: str  # key of the pickled function or class
    arguments: bytes
    needs: tuple[str, ...]  # references among the arguments
    returns: tuple[str, ...]
    resources: dict[str, float]
    setup: bytes  # environment, working directory and sys.path of the process
    retries: int = 0
    retry_exceptions: bytes = b""  # pickled: True or the classes, which only the process of the task may know
    cancelled: bool = False


@dataclass(eq=False)
class Call:
    method: str
    arguments: bytes
    needs: tuple[str, ...]
    returns: tuple[str, ...]


@dataclass(eq=False)
class Actor:
    id: str
    name: str
    namespace: str
    get_if_exists: bool
    creation: Task
    handle: tuple[Any, ...]  # what another process makes a handle of
    max_concurrency: int | None = None
    restarts: int = 0
    process: Process | None = None
    calls: deque[Call] = field(default_factory=deque)
    running: list[Call] = field(default_factory=list)
    dead: bool = False
    death: Stored | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For its own process."""
        return {**self.__dict__, "process": None, "calls": deque(), "running": []}


class Waiter:
    """A process that waits until `needed` of the references have a value."""

    def __init__(self, peer: Peer, request: int, refs: list[str], needed: int, values: Mapping[str, Stored]) -> None:
        self.peer = peer
        self.request = request
        self.lender: Process | None = None
        self._refs = refs
        self._needed = needed
        self._values = values

    def note(self, ref: str) -> None:
        self.complete()

    def complete(self) -> bool:
        ready = [ref for ref in self._refs if ref in self._values]
        if len(ready) < self._needed or self._needed < 0:
            return False
        if self._needed == len(self._refs):
            self.peer.send("values", self.request, [self._values[ref] for ref in self._refs])
        else:
            self.peer.send("ready", self.request, ready)
        self._needed = -1
        if self.lender is not None:
            self.lender.reclaim()
            self.lender = None
        return True

    def finish(self, resources: Resources) -> None:
        self._needed = -1
        if self.lender is not None:
            self.lender.reclaim()
            self.lender = None
