"""References to values."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from concurrent.futures import Future
from typing import Any

from trireme.compat.ray._tasks._client import client


class ObjectRef:
    """A value that a task will return, or that put() has stored.

    The value is freed with the reference of the process that made it, unless the reference was sent to another process:
    then it stays until the script ends.
    """

    __slots__ = ("__weakref__", "_id", "_owned", "_shared")

    def __init__(self, name: str, owned: bool = False) -> None:
        self._id = name
        self._owned = owned
        self._shared = False

    def hex(self) -> str:
        return self._id

    def binary(self) -> bytes:
        return bytes.fromhex(self._id)

    def future(self) -> Future[Any]:
        from trireme.compat.ray._tasks._api import resolve

        _, waiting = client().begin("get", [self._id], 1)
        made: Future[Any] = Future()

        def finish(answer: Future[Any]) -> None:
            try:
                made.set_result(resolve(answer.result()[0]))
            except BaseException as error:
                made.set_exception(error)

        waiting.add_done_callback(finish)
        return made

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        return asyncio.wrap_future(self.future()).__await__()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectRef) and self._id == other._id

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        return f"ObjectRef({self._id})"

    def __reduce__(self) -> tuple[Any, ...]:
        self._shared = True
        return ObjectRef, (self._id,)

    def __del__(self) -> None:
        if self._owned and not self._shared:
            with contextlib.suppress(Exception):  # at exit
                _released(self._id)


def _released(name: str) -> None:
    from trireme.compat.ray._tasks import _client

    if _client._client is not None:
        _client._client.send("free", [name])
