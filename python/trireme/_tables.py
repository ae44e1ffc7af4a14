"""Metrics as tables: pandas, Arrow, CSV."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

from trireme._extras import imported

_OWN = ("rank", "step", "time", "attempt")


def rank_filter(ranks: str | int | Collection[int]) -> Callable[[int], bool]:
    if ranks == "all":
        return lambda rank: True
    if isinstance(ranks, int) and not isinstance(ranks, bool):
        return lambda rank: rank == ranks
    if isinstance(ranks, str) or not isinstance(ranks, Collection):
        raise ValueError(f"ranks = {ranks!r}: expected 'all', a rank or a list of ranks")
    chosen = set(ranks)
    return lambda rank: rank in chosen


def flatten(values: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} as {"a/b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}/"))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def columns_of(history: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Every column has one value per report, None if the report has none."""
    columns: dict[str, list[Any]] = {
        "rank": [report["rank"] for report in history],
        "step": [report["index"] for report in history],
        "time": [report["time"] for report in history],
        "attempt": [report["attempt"] for report in history],
    }
    for row, report in enumerate(history):
        for key, value in flatten(report["metrics"]).items():
            # A metric may have the name of a built-in column.
            name = f"metrics/{key}" if key in _OWN else key
            columns.setdefault(name, [None] * len(history))[row] = value
    return columns


def import_pandas(what: str) -> Any:
    return imported("pandas", f"{what} needs pandas: pip install trireme[pandas]")


def to_pandas(history: list[dict[str, Any]]) -> Any:
    return import_pandas("Result.to_pandas()").DataFrame(columns_of(history))


def to_arrow(history: list[dict[str, Any]]) -> Any:
    pyarrow = imported("pyarrow", "Result.to_arrow() needs pyarrow: pip install trireme[data]")

    def column(values: list[Any]) -> Any:
        try:
            return pyarrow.array(values)
        except (pyarrow.ArrowException, OverflowError):
            # A metric with both numbers and text is stored as text.
            return pyarrow.array([_text(value) for value in values], pyarrow.string())

    return pyarrow.table({name: column(values) for name, values in columns_of(history).items()})


def to_csv(history: list[dict[str, Any]], path: str | os.PathLike[str]) -> None:
    import csv

    columns = columns_of(history)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in range(len(history)):
            writer.writerow([_text(values[row]) for values in columns.values()])


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return value.hex() if isinstance(value, bytes) else json.dumps(value) if _is_json(value) else str(value)


def _is_json(value: Any) -> bool:
    return isinstance(value, (bool, int, list, dict))
