"""Simulates remote storage on one machine: every request has a latency, and some fail."""

from __future__ import annotations

import random
import time
from typing import Any

from fsspec.implementations.local import LocalFileSystem

_ONE_WAY_S = 0.003
_UNANSWERED = 0.01


class FarFiles(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Local folders behind a slow connection. Because of its protocol it is not treated as local."""

    protocol = "far"
    cachable = False

    def ls(self, path: str, *words: Any, **options: Any) -> Any:
        # Never fails: fsspec silently omits folders that it cannot list.
        time.sleep(random.SystemRandom().uniform(0, _ONE_WAY_S))
        return super().ls(path, *words, **options)

    def _open(self, path: str, *words: Any, **options: Any) -> Any:
        return self._travel(super()._open, path, *words, **options)

    def mv(self, path1: str, path2: str, **options: Any) -> Any:
        return self._travel(super().mv, path1, path2, **options)

    def rm(self, path: Any, *words: Any, **options: Any) -> Any:
        return self._travel(super().rm, path, *words, **options)

    def makedirs(self, path: str, *words: Any, **options: Any) -> Any:
        return self._travel(super().makedirs, path, *words, **options)

    def _travel(self, request: Any, *words: Any, **options: Any) -> Any:
        """A request that fails may still have been executed."""
        dice = random.SystemRandom()
        time.sleep(dice.uniform(0, _ONE_WAY_S))
        lost = dice.random()
        if lost < _UNANSWERED / 2:
            raise OSError("the storage did not receive the request")
        answer = request(*words, **options)
        if lost < _UNANSWERED:
            raise OSError("the storage did not answer")
        return answer
