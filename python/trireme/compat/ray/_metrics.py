"""ray.util.metrics: accepted, and kept in the process: Trireme exports the metrics that report() gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trireme.compat.ray._refusal import warn_once


class _Metric:
    def __init__(self, name: str, description: str = "", tag_keys: Sequence[str] | None = None) -> None:
        if not name:
            raise ValueError("Empty name is not allowed. Please provide a metric name.")
        warn_once("ray.util.metrics: the values stay in the process; report() and callbacks export metrics")
        self._name = name
        self._description = description
        self._tag_keys = tuple(tag_keys or ())
        self._default_tags: dict[str, str] = {}
        self.values: dict[tuple[tuple[str, str], ...], float] = {}

    def set_default_tags(self, default_tags: dict[str, str]) -> Any:
        self._default_tags = dict(default_tags)
        return self

    @property
    def info(self) -> dict[str, Any]:
        return {
            "name": self._name,
            "description": self._description,
            "tag_keys": self._tag_keys,
            "default_tags": self._default_tags,
        }

    def _key(self, tags: dict[str, str] | None) -> tuple[tuple[str, str], ...]:
        given = {**self._default_tags, **(tags or {})}
        if unknown := sorted(set(given) - set(self._tag_keys)):
            raise ValueError(f"metric {self._name}: unknown tags {', '.join(unknown)}; name them in tag_keys")
        return tuple(sorted(given.items()))


class Counter(_Metric):
    def inc(self, value: float = 1.0, tags: dict[str, str] | None = None) -> None:
        if value <= 0:
            raise ValueError(f"value must be >0, got {value}")
        key = self._key(tags)
        self.values[key] = self.values.get(key, 0.0) + value


class Gauge(_Metric):
    def set(self, value: float | None, tags: dict[str, str] | None = None) -> None:
        if value is not None:
            self.values[self._key(tags)] = float(value)


class Histogram(_Metric):
    def __init__(
        self,
        name: str,
        description: str = "",
        boundaries: list[float] | None = None,
        tag_keys: Sequence[str] | None = None,
    ) -> None:
        if not boundaries:
            raise ValueError("boundaries argument should be provided when using the Histogram class")
        super().__init__(name, description, tag_keys)
        self.boundaries = boundaries

    def observe(self, value: float, tags: dict[str, str] | None = None) -> None:
        key = self._key(tags)
        self.values[key] = self.values.get(key, 0.0) + 1
