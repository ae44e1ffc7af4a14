"""Places in the data that travel with checkpoints by themselves."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakMethod

Position = dict[str, Any]


class Positions:
    """Of everything in this worker that has a place in its data and lives; named "loader/0", "loader/1" and so on.

    stored: those of the checkpoint that the worker begins with. They belong to the first attempt at the data: once
    somebody has begun to take it, what is made later is something else, whatever its number. Until it is taken up, a
    stored one stays in every checkpoint.
    """

    def __init__(self, stored: Mapping[str, Position]) -> None:
        self._stored = dict(stored)
        self._made: Counter[str] = Counter()
        # Weak: a loader that is made anew for every epoch goes when the training function drops it.
        self._sources: dict[str, WeakMethod[Callable[[], Position]]] = {}
        self._begun = False

    def add(self, kind: str, now: Callable[[], Position]) -> Position | None:
        """The place to begin at, where there is one. now: a bound method that tells it, as plain values."""
        name = f"{kind}/{self._made[kind]}"
        self._made[kind] += 1
        self._sources[name] = WeakMethod(now)
        stored = self._stored.pop(name, None)
        if stored is None or not self._begun:
            return stored
        warnings.warn(
            f"the checkpoint has a position of {name}, but data was taken before it was prepared: it starts from the "
            "beginning; prepare all loaders, once, before the first is iterated",
            stacklevel=4,
        )
        return None

    def add_named(self, name: str, now: Callable[[], Position]) -> Position | None:
        """As add(), for what has a name of its own: it is the same whenever it is made."""
        self._sources[name] = WeakMethod(now)
        return self._stored.pop(name, None)

    def unclaimed(self, name: str) -> Position | None:
        """That of something which nobody has made in this attempt."""
        return self._stored.get(name)

    def begin(self) -> None:
        """Somebody takes data."""
        self._begun = True

    def now(self) -> dict[str, Position | None]:
        """None: nobody has taken up the stored one yet."""
        found = {name: source() for name, source in self._sources.items()}
        self._sources = {name: self._sources[name] for name, now in found.items() if now is not None}
        untouched: dict[str, Position | None] = dict.fromkeys(self._stored)
        return untouched | {name: now() for name, now in found.items() if now is not None}
