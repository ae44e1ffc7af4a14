"""ray.util.ActorPool: gives calls to the actors that are free."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from trireme.compat.ray._tasks import _api

Submit = Callable[[Any, Any], Any]


class ActorPool:
    def __init__(self, actors: list[Any]) -> None:
        self._free = deque(actors)
        self._actor_of: dict[Any, Any] = {}
        self._ordered: dict[int, Any] = {}
        self._next_submitted = 0
        self._next_returned = 0
        self._pending: deque[tuple[Submit, Any]] = deque()

    def map(self, fn: Submit, values: Iterable[Any]) -> Iterator[Any]:
        """The results in the order of the values."""
        self._drain()
        for value in values:
            self.submit(fn, value)
        return self._all(self.get_next)

    def map_unordered(self, fn: Submit, values: Iterable[Any]) -> Iterator[Any]:
        self._drain()
        for value in values:
            self.submit(fn, value)
        return self._all(self.get_next_unordered)

    def submit(self, fn: Submit, value: Any) -> None:
        if not self._free:
            self._pending.append((fn, value))
            return
        actor = self._free.popleft()
        ref = fn(actor, value)
        self._actor_of[ref] = actor
        self._ordered[self._next_submitted] = ref
        self._next_submitted += 1

    def has_next(self) -> bool:
        return bool(self._actor_of)

    def get_next(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        if not self.has_next():
            raise StopIteration("no more results to get")
        while self._next_returned not in self._ordered:  # get_next_unordered() has returned it
            self._next_returned += 1
        ref = self._ordered[self._next_returned]
        if not self._ready([ref], timeout):
            return self._late(ref, ignore_if_timedout)
        return self._take(ref)

    def get_next_unordered(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        if not self.has_next():
            raise StopIteration("no more results to get")
        ready = self._ready(list(self._actor_of), timeout)
        if not ready:
            return self._late(None, ignore_if_timedout)
        return self._take(ready[0])

    def has_free(self) -> bool:
        return bool(self._free) and not self._pending

    def pop_idle(self) -> Any:
        return self._free.popleft() if self.has_free() else None

    def push(self, actor: Any) -> None:
        if actor in self._free or actor in self._actor_of.values():
            raise ValueError("the actor already belongs to this pool")
        self._return(actor)

    def _all(self, take: Callable[[], Any]) -> Iterator[Any]:
        while self.has_next():
            yield take()

    def _drain(self) -> None:
        """Results of earlier submits are dropped, as in Ray."""
        while self.has_next():
            self.get_next_unordered()

    def _ready(self, refs: list[Any], timeout: float | None) -> list[Any]:
        return _api.wait(refs, num_returns=1, timeout=timeout)[0]

    def _late(self, ref: Any, ignore: bool) -> None:
        if not ignore:
            raise TimeoutError("Timed out waiting for result")
        if ref is not None:
            self._take(ref)

    def _take(self, ref: Any) -> Any:
        actor = self._actor_of.pop(ref)
        self._ordered = {index: each for index, each in self._ordered.items() if each != ref}
        self._return(actor)
        return _api.get(ref)

    def _return(self, actor: Any) -> None:
        self._free.append(actor)
        if self._pending:
            self.submit(*self._pending.popleft())
