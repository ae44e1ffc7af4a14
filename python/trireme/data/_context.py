"""Settings for datasets in this process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar


@dataclass
class DataContext:
    """enable_progress_bars: print a line if counting rows takes long."""

    enable_progress_bars: bool = True

    _current: ClassVar[DataContext | None] = None

    @classmethod
    def get_current(cls) -> DataContext:
        """The settings of this process; changes take effect immediately."""
        if cls._current is None:
            cls._current = cls()
        return cls._current

    def copy(self) -> DataContext:
        return replace(self)
