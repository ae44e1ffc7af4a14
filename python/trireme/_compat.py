"""Compatibility modes in the processes that a driver starts."""

from __future__ import annotations

import os
from importlib import import_module


def prepare_compat() -> None:
    """Before a process loads the user's objects: they name modules that the driver's import hook replaces."""
    if os.environ.get("TRIREME_RAY_COMPAT"):
        import_module("trireme.compat.ray")
