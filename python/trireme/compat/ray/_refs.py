"""References to values that exist already."""

from __future__ import annotations

from typing import Any


class ReadyRef:
    """What ray.get() returns at once."""

    def __init__(self, value: Any) -> None:
        self.value = value
