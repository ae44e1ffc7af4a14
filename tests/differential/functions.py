"""The functions of plans, by name, for rows and for batches. tests/cpp/data_plan_program.cpp has the same in C++."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]


def add_one(row: Row, column: str) -> Row:
    value = row[column]
    return row | {column: None if value is None else value + 1}


def odd_to_null(row: Row, column: str) -> Row:
    value = row[column]
    return row | {column: None if value is None or value % 2 == 1 else value}


def is_missing(row: Row, column: str) -> Row:
    """A new column."""
    return row | {"missing": row[column] is None}


MAPS: dict[str, Callable[[Row, str], Row]] = {
    "identity": lambda row, column: dict(row),
    "add_one": add_one,
    "odd_to_null": odd_to_null,
    "is_missing": is_missing,
}

FILTERS: dict[str, Callable[[Row, str], bool]] = {
    "is_set": lambda row, column: row[column] is not None,
    "is_missing": lambda row, column: row[column] is None,
    "none": lambda row, column: False,
}

FLAT_MAPS: dict[str, Callable[[Row, str], list[Row]]] = {
    "twice": lambda row, column: [dict(row), dict(row)],
    "if_set": lambda row, column: [] if row[column] is None else [dict(row)],
}
