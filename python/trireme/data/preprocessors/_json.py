"""Converts arguments and statistics of preprocessors to JSON and back. Reading it never executes code."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np


class NotJson(Exception):
    """A value cannot be written as JSON."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.value = value


def encoded(value: Any) -> Any:
    """Values that JSON does not support become dicts with one key: "$" and the kind."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if isinstance(value, int) and value >= 1 << 63:  # from columns of uint64
        return {"$int": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: encoded(item) for key, item in value.items()}
        return {"$pairs": [[encoded(key), encoded(item)] for key, item in value.items()]}
    if isinstance(value, list):
        return [encoded(item) for item in value]
    if isinstance(value, np.ndarray):
        return encoded(value.tolist())
    for kind, (python, write, _) in _KINDS.items():
        if isinstance(value, python):
            return {f"${kind}": write(value)}
    if isinstance(value, type) and issubclass(value, np.generic):
        return {"$dtype": np.dtype(value).str}
    raise NotJson(value)


def decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    name = next(iter(value), "")
    if not name.startswith("$"):
        return {key: decoded(item) for key, item in value.items()}
    content = value[name]
    if name == "$float":
        return float(content)
    if name == "$int":
        return int(content)
    if name == "$pairs":
        return {decoded(key): decoded(item) for key, item in content}
    if name[1:] not in _KINDS:
        raise ValueError(f"values of the kind {name[1:]!r} are not supported by this version of Trireme")
    return _KINDS[name[1:]][2](content)


def _datetime(text: str) -> datetime:
    fraction = text.partition(".")[2]
    if fraction[6:7].isdigit():  # only pandas has nanoseconds
        import pandas as pd

        stamp: datetime = pd.Timestamp(text)
        return stamp
    return datetime.fromisoformat(text)


# By name: the type, its encoder and its decoder. A datetime is also a date: it must be first.
_KINDS: dict[str, tuple[type, Any, Any]] = {
    "tuple": (tuple, lambda value: [encoded(item) for item in value], lambda items: tuple(map(decoded, items))),
    "bytes": (bytes, lambda value: base64.b64encode(value).decode(), base64.b64decode),
    "datetime": (datetime, lambda value: value.isoformat(), _datetime),
    "date": (date, date.isoformat, date.fromisoformat),
    "time": (time, time.isoformat, time.fromisoformat),
    "timedelta": (
        timedelta,
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda parts: timedelta(*parts),
    ),
    "decimal": (Decimal, str, Decimal),
    "dtype": (np.dtype, lambda value: value.str, np.dtype),
}
