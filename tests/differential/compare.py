"""Compares an outcome with what the oracle expects, and the outcomes of both languages with each other."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from typing import Any

from differential.oracle import Expected, Frame
from differential.oracle_relations import Set, identity

Outcome = dict[str, Any]


def in_cpp(expected: Expected) -> Expected:
    """What C++ must return: dictionaries are columns of their values, and a Value has 64 bits with a sign."""
    frame = expected.frame
    if frame is not None:
        kinds = {name: "string" if kind == "dictionary<string>" else kind for name, kind in frame.kinds.items()}
        return replace(expected, frame=replace(frame, kinds=kinds))
    values = expected.value if isinstance(expected.value, list) else [expected.value]
    if any(isinstance(value, int) and value >= 2**63 for value in values):
        return replace(expected, value="a value does not fit into 64 bits", fails="must")
    return expected


def disagreement(expected: Expected, outcome: Outcome) -> str | None:
    """What differs, or None."""
    if "died" in outcome:
        return f"the process died: {outcome['died']}"
    if "error" in outcome:
        return None if expected.fails != "never" else f"an unexpected error: {outcome['error']}"
    if expected.fails == "must":
        return f"no error, although {expected.value}; got {shown(outcome)}"
    if expected.frame is None:
        if expected.fails == "may":
            return None  # an error in rows or columns that a later step drops
        return _differing_values(expected.value, outcome["value"])
    return _differing_tables(expected.frame, outcome["table"], expected.sampled)


# The readers of files have the same fragments in both languages, and so the same shuffles.
_SAME_FRAGMENTS = {"with_column", "select", "drop", "rename", "filter", "filter_rows", "shuffle"}
_SAME_FRAGMENTS |= {"limit", "split", "split_at", "train_test"}


def between_languages(plan: dict[str, Any], first: Outcome, second: Outcome, expected: Expected) -> str | None:
    """Where the oracle knows no order, as after a shuffle of files, the languages must still agree on it."""
    if "table" not in first or "table" not in second or expected.frame is None or expected.frame.ordered:
        return None
    node = plan["dataset"]
    if node["source"]["from"] != "parquet" or not {step["op"] for step in node["steps"]} <= _SAME_FRAGMENTS:
        return None
    if node["source"]["files"] > len(plan["tables"][node["source"]["table"]]["rows"]):
        return None  # a file without rows is a fragment in Python only
    rows = [[*map(identity, row)] for row in first["table"]["rows"]]
    others = [[*map(identity, row)] for row in second["table"]["rows"]]
    if rows != others:
        return f"Python returns {first['table']['rows']}, C++ {second['table']['rows']}"
    return None


def shown(outcome: Outcome) -> str:
    return repr(outcome.get("table", outcome.get("value", outcome.get("error"))))


def _differing_values(expected: Any, value: Any) -> str | None:
    if isinstance(expected, Set):
        same = Counter(map(_rough, expected)) == Counter(map(_rough, value))
    else:
        same = equal(expected, value)
    return None if same else f"expected {expected!r}, got {value!r}"


def _differing_tables(frame: Frame, table: dict[str, Any], sampled: bool) -> str | None:
    names = list(frame.kinds)
    found = [name for name, _ in table["columns"]]
    if found != names and not (not frame.rows and frame.loose):
        return f"expected the columns {names}, got {found}"
    for name, kind in table["columns"]:
        if name not in frame.loose and kind != frame.kinds[name]:
            return f"column {name} should be {frame.kinds[name]}, is {kind}"
    rows = [[row[name] for name in names] for row in frame.rows]
    if frame.taken is not None and frame.taken != len(table["rows"]):
        return f"expected {frame.taken} rows, got {len(table['rows'])}: {table['rows']}"
    if sampled or frame.taken is not None:
        return _differing_sample(rows, table["rows"], frame.ordered)
    if len(rows) != len(table["rows"]):
        return f"expected {len(rows)} rows, got {len(table['rows'])}: {rows} and {table['rows']}"
    if not frame.ordered:
        rows, got = sorted(rows, key=_order), sorted(table["rows"], key=_order)
    else:
        got = table["rows"]
    for index, (mine, its) in enumerate(zip(rows, got, strict=True)):
        if not equal(mine, its):
            return f"row {index} should be {mine}, is {its}"
    return None


def _differing_sample(rows: list[Any], got: list[Any], ordered: bool) -> str | None:
    """Some of the rows, in their order, if that is defined."""
    left = iter(rows if ordered else sorted(rows, key=_order))
    got = got if ordered else sorted(got, key=_order)
    for row in got:
        if not any(equal(each, row) for each in left):
            return f"row {row} of the sample is not one of the rows, or not in their order: {rows}"
    return None


def equal(expected: Any, value: Any) -> bool:
    """NaN equals NaN, 0.0 equals -0.0; floats differ by rounding at most: sums have no fixed order."""
    if isinstance(expected, bool) or isinstance(value, bool) or expected is None or value is None:
        return expected is value
    if isinstance(expected, list) and isinstance(value, list):
        return len(expected) == len(value) and all(map(equal, expected, value))
    if isinstance(expected, dict) and isinstance(value, dict):
        return expected.keys() == value.keys() and all(equal(expected[key], value[key]) for key in expected)
    if isinstance(expected, float) and isinstance(value, (int, float)):
        if math.isnan(expected) or math.isnan(value):
            return math.isnan(expected) and math.isnan(value)
        return expected == value or math.isclose(expected, value, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(expected, Decimal):
        return expected == value
    if isinstance(expected, int) and isinstance(value, float):
        return expected == value  # a column of integers in a text file, with nulls
    return type(expected) is type(value) and bool(expected == value)


def _order(row: list[Any]) -> str:
    return repr([_rough(value) for value in row])


def _rough(value: Any) -> Any:
    """Equal for values that equal() takes for equal."""
    if isinstance(value, float):
        text = f"{value + 0.0:.9g}"
        return text if not math.isfinite(value) or float(text) % 1 else str(int(float(text)))
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, Decimal):
        return f"{value.normalize()}"
    return repr(value)
