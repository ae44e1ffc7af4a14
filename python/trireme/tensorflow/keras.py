"""ReportCheckpointCallback of trireme.keras, under the module name that Ray Train uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    ReportCheckpointCallback = Any

__all__ = ["ReportCheckpointCallback"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from trireme import keras

        return keras.ReportCheckpointCallback
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
