"""The trainer's own training function, without importing xgboost in the driver."""

from __future__ import annotations

from typing import Any


def start_loop(config: dict[str, Any]) -> None:
    from trireme.xgboost._loop import train

    train(config)
