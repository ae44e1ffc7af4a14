"""Methods of other packages, wrapped. A later call replaces the wrapper of an earlier attempt of this process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def wrap(owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
    """owner: a class or module. make: gets the original function and returns what replaces it."""
    kept = f"_trireme_original_{name}"
    original = owner.__dict__.get(kept) or getattr(owner, name)
    setattr(owner, kept, original)
    setattr(owner, name, functools.wraps(original)(make(original)))
