"""Settings of a training function that apply to everything it prepares later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from trireme._session import TrainSession

if TYPE_CHECKING:
    from trireme.torch._precision import Precision


@dataclass
class Settings:
    seed: int = 0
    precision: Precision | None = None
    loaders: int = 0  # number of loaders split between the ranks


# By session: local mode runs many training functions in one process.
_settings: WeakKeyDictionary[TrainSession, Settings] = WeakKeyDictionary()


def settings_of(session: TrainSession) -> Settings:
    return _settings.setdefault(session, Settings())
