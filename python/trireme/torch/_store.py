"""torch's rendezvous store over the run's own connection: needs no port and does not depend on any rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

T = TypeVar("T")

# torch's process groups, and threads that they leave behind, reference only the C++ half of a store. A call without the
# Python half fails in C++, so every store lives as long as the process: one per attempt.
_alive: list[ControlStore] = []


class ControlStore(dist.Store):  # type: ignore[misc]
    """The store for torch's process groups. Keys have a prefix, so that attempts do not see each other's keys.

    C++ calls it through torch's PythonStore, which has two particularities. It looks for `getNumKeys` and `deleteKey`
    under their C++ names. And it passes on neither the timeout, which therefore stays in the C++ half, nor queues and
    list_keys(), which raise torch's NotImplementedError.
    """

    def __init__(self, session: Any, prefix: str, timeout: timedelta) -> None:
        super().__init__()
        self._session = session
        self._prefix = prefix
        self.set_timeout(timeout)
        _alive.append(self)

    def clone(self) -> ControlStore:
        # A new object would lose its Python half at once. This one may be used by any number of threads.
        return self

    def set(self, key: str, value: str | bytes) -> None:
        self._session.store_set(self._prefix + key, _bytes(value))

    def get(self, key: str) -> bytes:
        seconds = self.timeout.total_seconds()
        value: bytes = self._timed([key], seconds, lambda: self._session.store_get(self._prefix + key, seconds))
        return value

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        seconds = self.timeout.total_seconds()
        values: list[bytes] = self._timed(
            keys, seconds, lambda: self._session.store_multi_get(self._prefixed(keys), seconds)
        )
        return values

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def append(self, key: str, value: str | bytes) -> None:
        self._session.store_append(self._prefix + key, _bytes(value))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        seconds = (self.timeout if timeout is None else timeout).total_seconds()
        self._timed(keys, seconds, lambda: self._session.store_wait(self._prefixed(keys), seconds))

    def check(self, keys: Sequence[str]) -> bool:
        present: bool = self._session.store_check(self._prefixed(keys))
        return present

    def add(self, key: str, amount: int) -> int:
        total: int = self._session.store_add(self._prefix + key, amount)
        return total

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        stored: bytes = self._session.store_compare_set(
            self._prefix + key, _bytes(expected_value), _bytes(desired_value)
        )
        return stored

    def delete_key(self, key: str) -> bool:
        deleted: bool = self._session.store_delete(self._prefix + key)
        return deleted

    def num_keys(self) -> int:
        count: int = self._session.store_num_keys()
        return count

    def has_extended_api(self) -> bool:
        return True

    deleteKey = delete_key
    getNumKeys = num_keys

    def _prefixed(self, keys: Sequence[str]) -> list[str]:
        return [self._prefix + key for key in keys]

    def _timed(self, keys: Sequence[str], seconds: float, call: Callable[[], T]) -> T:
        try:
            return call()
        except TimeoutError as error:
            raise dist.DistStoreError(
                f"timed out after {seconds:g} s waiting for {', '.join(keys)}: other workers have not set it; "
                "increase TorchConfig(timeout_s=...)"
            ) from error


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
