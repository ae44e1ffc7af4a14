"""Imports of optional packages."""

from __future__ import annotations

import importlib
from typing import Any


def import_extra(what: str, module: str, extra: str) -> Any:
    """The module, or an error that names the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f'{what} needs {module.partition(".")[0]}: pip install "trireme[{extra}]" ({error})'
        ) from error
