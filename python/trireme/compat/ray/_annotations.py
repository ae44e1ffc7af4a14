"""ray.util.annotations: decorators without an effect."""

from __future__ import annotations

from typing import Any


def PublicAPI(*args: Any, **options: Any) -> Any:
    return args[0] if len(args) == 1 and callable(args[0]) else lambda target: target


DeveloperAPI = Deprecated = PublicAPI
