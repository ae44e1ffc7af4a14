"""The trainers' own training function, without importing the library in the driver."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def start_loop(config: dict[str, Any]) -> None:
    import_module(f"trireme.{config['library']}._loop").train(config)
