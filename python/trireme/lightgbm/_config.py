from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trireme.backend import Backend, BackendConfig


@dataclass
class LightGBMConfig(BackendConfig):
    """The setup of LightGBM's network. It has no options."""

    preload: ClassVar[tuple[str, ...]] = ("lightgbm", "trireme.lightgbm._loop")

    @property
    def backend_cls(self) -> type[Backend]:
        from trireme.lightgbm._backend import LightGBMBackend

        return LightGBMBackend
