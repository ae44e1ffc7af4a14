"""Positions in the data, stored with checkpoints automatically."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakMethod

Position = dict[str, Any]


class Positions:
    """The positions of all live data sources in this worker, named "loader/0", "loader/1" and so on.

    stored: the positions of the checkpoint that the worker starts from. Only sources created before iteration begins
    restore them: a source created later has the same number but may read other data. A stored position that no source
    has claimed stays in every checkpoint.
    """

    def __init__(self, stored: Mapping[str, Position]) -> None:
        self._stored = dict(stored)
        self._made: Counter[str] = Counter()
        # Weak: a loader that is created for every epoch is freed when the training function drops it.
        self._sources: dict[str, WeakMethod[Callable[[], Position]]] = {}
        self._begun = False

    def add(self, kind: str, now: Callable[[], Position]) -> Position | None:
        """Returns the stored position, if any. now: a bound method that returns the current one as plain values."""
        name = f"{kind}/{self._made[kind]}"
        self._made[kind] += 1
        self._sources[name] = WeakMethod(now)
        stored = self._stored.pop(name, None)
        if stored is None or not self._begun:
            return stored
        warnings.warn(
            f"the checkpoint has a position of {name}, but a loader was iterated before {name} was prepared: it starts "
            "from the beginning; prepare all loaders once, before iterating any of them",
            stacklevel=4,
        )
        return None

    def add_named(self, name: str, now: Callable[[], Position]) -> Position | None:
        """Like add(), for a named source: it restores its position whenever it is created."""
        self._sources[name] = WeakMethod(now)
        return self._stored.pop(name, None)

    def unclaimed(self, name: str) -> Position | None:
        """The stored position of a source that was not created in this attempt."""
        return self._stored.get(name)

    def begin(self) -> None:
        """Iteration of a source has begun."""
        self._begun = True

    def now(self) -> dict[str, Position | None]:
        """None for a stored position that no source has claimed.

        Other threads may report and add sources meanwhile. There is no lock: a forked child would wait for it forever.
        """
        positions: dict[str, Position | None] = dict.fromkeys(list(self._stored))
        for name, source in list(self._sources.items()):
            now = source()
            if now is not None:
                positions[name] = now()
            elif self._sources.get(name) is source:
                self._sources.pop(name, None)
        return positions
