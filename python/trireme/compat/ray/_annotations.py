"""ray.util.annotations and ray.util.debug: decorators without an effect, and messages that are logged once."""

from __future__ import annotations

from typing import Any

_logged: set[str] = set()
_enabled = True


class RayDeprecationWarning(DeprecationWarning):
    pass


def PublicAPI(*args: Any, **options: Any) -> Any:
    return args[0] if len(args) == 1 and callable(args[0]) else lambda target: target


DeveloperAPI = Deprecated = PublicAPI


def log_once(key: str) -> bool:
    """True on the first call with this key."""
    if not _enabled or key in _logged:
        return False
    _logged.add(key)
    return True


def disable_log_once_globally() -> None:
    global _enabled
    _enabled = False


def enable_periodic_logging() -> None:
    """Keys may be logged again."""
    global _enabled
    _enabled = True
    _logged.clear()
