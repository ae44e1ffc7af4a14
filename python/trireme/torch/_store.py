"""torch's rendezvous store over the run's own connection: needs no port and does not depend on any rank."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

T = TypeVar("T")


class ControlStore(dist.Store):  # type: ignore[misc]
    """The store for torch's process groups. Keys have a prefix, so that attempts do not see each other's keys."""

    def __init__(self, session: Any, prefix: str, timeout: timedelta) -> None:
        super().__init__()
        self._session = session
        self._prefix = prefix
        self._timeout = timeout

    @property
    def timeout(self) -> timedelta:
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def clone(self) -> ControlStore:
        return ControlStore(self._session, self._prefix, self._timeout)

    def set(self, key: str, value: str | bytes) -> None:
        self._session.store_set(self._prefix + key, _bytes(value))

    def get(self, key: str) -> bytes:
        seconds = self._timeout.total_seconds()
        value: bytes = self._timed([key], seconds, lambda: self._session.store_get(self._prefix + key, seconds))
        return value

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        seconds = (timeout or self._timeout).total_seconds()
        self._timed(keys, seconds, lambda: self._session.store_wait([self._prefix + key for key in keys], seconds))

    def check(self, keys: list[str]) -> bool:
        present: bool = self._session.store_check([self._prefix + key for key in keys])
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
        return False

    def _timed(self, keys: list[str], seconds: float, call: Callable[[], T]) -> T:
        try:
            return call()
        except TimeoutError as error:
            raise dist.DistStoreError(
                f"timed out after {seconds:g} s waiting for {', '.join(keys)}: other workers have not set it; "
                "increase TorchConfig(timeout_s=...)"
            ) from error


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
