"""Methods of other packages, wrapped. A later call replaces the wrapper of an earlier attempt of this process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def wrap(owner: Any, name: str, function: Callable[..., Any]) -> None:
    """owner: a class or module. function: called in its place, with the original and then the arguments."""
    kept = f"_trireme_original_{name}"
    original = owner.__dict__.get(kept) or getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        return function(original, *arguments, **options)

    setattr(owner, kept, original)
    setattr(owner, name, wrapper)
