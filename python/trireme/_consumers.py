"""Training loops that fetch batches ahead by an unknown number, and report how many they have used.

tf.data prefetches in its own threads. The position in a checkpoint must be after the last batch that was trained on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Source(Protocol):
    def used(self, batches: int) -> None: ...


class ReportingLoop:
    """A loop that calls used() after every step. One step uses a batch of every source."""

    def __init__(self) -> None:
        self._sources: list[Source] = []
        # Batches of the current epoch, once its first batch has been delivered.
        self.steps: int | None = None

    def add(self, source: Source) -> None:
        if source not in self._sources:
            self._sources.append(source)

    def used(self, batches: int) -> None:
        for source in self._sources:
            source.used(batches)


# tf.data calls the sources on threads of its own.
_loop: ReportingLoop | None = None


@contextmanager
def reporting_loop(loop: ReportingLoop) -> Iterator[None]:
    global _loop
    before, _loop = _loop, loop
    try:
        yield
    finally:
        _loop = before


def current_loop() -> ReportingLoop | None:
    return _loop
