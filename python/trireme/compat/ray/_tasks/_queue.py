"""ray.util.queue: a queue in an actor, for any process of the script."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterable
from typing import Any

from trireme.compat.ray._tasks import _api
from trireme.compat.ray._tasks._remote import ActorClass


class Empty(queue.Empty):
    pass


class Full(queue.Full):
    pass


class _QueueActor:
    def __init__(self, maxsize: int) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue(maxsize)

    async def size(self) -> int:
        return self._queue.qsize()

    async def put(self, items: list[Any], block: bool, timeout: float | None) -> bool:
        """All items or, without waiting, none. Whether they were put."""
        if not block and self._queue.maxsize and self._queue.qsize() + len(items) > self._queue.maxsize:
            return False
        try:
            for item in items:
                await asyncio.wait_for(self._queue.put(item), timeout)
        except TimeoutError:
            return False
        return True

    async def get(self, count: int, block: bool, timeout: float | None) -> list[Any] | None:
        """None: the queue has fewer items."""
        if not block and self._queue.qsize() < count:
            return None
        try:
            return [await asyncio.wait_for(self._queue.get(), timeout) for _ in range(count)]
        except TimeoutError:
            return None


class Queue:
    """First in, first out. A copy that is sent to another process is the same queue."""

    def __init__(self, maxsize: int = 0, actor_options: dict[str, Any] | None = None) -> None:
        self.maxsize = maxsize
        self.actor = ActorClass(_QueueActor, {"num_cpus": 0, **(actor_options or {})}).remote(maxsize)

    def __len__(self) -> int:
        return self.qsize()

    def qsize(self) -> int:
        size: int = _api.get(self.actor.size.remote())
        return size

    size = qsize

    def empty(self) -> bool:
        return self.qsize() == 0

    def full(self) -> bool:
        return 0 < self.maxsize <= self.qsize()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        _check(timeout)
        if not _api.get(self.actor.put.remote([item], block, timeout)):
            raise Full

    async def put_async(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        _check(timeout)
        if not await self.actor.put.remote([item], block, timeout):
            raise Full

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        _check(timeout)
        return _first(_api.get(self.actor.get.remote(1, block, timeout)))

    async def get_async(self, block: bool = True, timeout: float | None = None) -> Any:
        _check(timeout)
        return _first(await self.actor.get.remote(1, block, timeout))

    def put_nowait(self, item: Any) -> None:
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def put_nowait_batch(self, items: Iterable[Any]) -> None:
        if not _api.get(self.actor.put.remote(list(items), False, None)):
            raise Full(f"the queue has no room for all of them (maxsize {self.maxsize})")

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        found: list[Any] | None = _api.get(self.actor.get.remote(num_items, False, None))
        if found is None:
            raise Empty(f"the queue has less than {num_items} items")
        return found

    def shutdown(self, force: bool = False, grace_period_s: int = 5) -> None:
        if not force:
            _api.wait([self.actor.size.remote()], timeout=grace_period_s)
        _api.kill(self.actor)


def _check(timeout: float | None) -> None:
    if timeout is not None and timeout < 0:
        raise ValueError("'timeout' must be a non-negative number")


def _first(found: list[Any] | None) -> Any:
    if found is None:
        raise Empty
    return found[0]
