"""`init_process_group()` in scripts started by `trireme launch`: uses the run's own connection instead of a port."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlparse

_PLACE = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_STANDARD_TIMEOUT = timedelta(minutes=30)
_of_torch: Any = None


def take_env_rendezvous(module: Any, session: Any, prefix: str) -> None:
    """module: torch.distributed.rendezvous. Groups that do not span all workers still use torch's own rendezvous."""
    global _of_torch
    handlers = getattr(module, "_rendezvous_handlers", {})
    if "env" not in handlers:
        return
    _of_torch = _of_torch or handlers["env"]
    handlers["env"] = _EnvRendezvous(session, prefix)


class _EnvRendezvous:
    def __init__(self, session: Any, prefix: str) -> None:
        self._session = session
        self._prefix = prefix
        self._place = {name: os.environ[name] for name in _PLACE}
        self._count = 0

    def __call__(self, url: str, timeout: timedelta = _STANDARD_TIMEOUT, **options: Any) -> Iterator[Any]:
        query = {name.upper(): values[-1] for name, values in parse_qs(urlparse(url).query).items()}
        asked = {name: query.get(name, os.environ.get(name)) for name in _PLACE}
        if asked != self._place:
            standard: Iterator[Any] = _of_torch(url, timeout=timeout, **options)
            return standard
        from trireme.torch._store import ControlStore

        # A group that is created again must not see the addresses of the previous one.
        store = ControlStore(self._session, f"{self._prefix}torch/{self._count}/", timeout)
        self._count += 1
        self._session.set_collective_timeout(timeout.total_seconds())
        return iter([(store, int(self._place["RANK"]), int(self._place["WORLD_SIZE"]))])
