from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from trireme.backend import Backend, BackendConfig


@dataclass
class LightGBMConfig(BackendConfig):
    """The setup of LightGBM's network. It has no options."""

    # Set by a trainer with its own loop: the workers run no code of the user.
    _lean: bool = field(default=False, init=False, repr=False, compare=False)

    preload: ClassVar[tuple[str, ...]] = ("lightgbm", "trireme.lightgbm._loop")

    @property
    def backend_cls(self) -> type[Backend]:
        from trireme.lightgbm._backend import LightGBMBackend

        return LightGBMBackend
