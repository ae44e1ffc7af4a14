"""Known defects that are not fixed yet. Plans that meet one are skipped and counted; a fix deletes its entry here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from differential import oracle
from differential.expressions import columns
from differential.oracle import Frame
from differential.oracle_expressions import Overflows, Unsupported, kind_of

FUNCTIONS = ("map", "flat_map", "map_batches", "filter_rows")
CUTS = ("limit", "split", "split_at", "train_test", "repartition", "shuffle", "block_order", "zip")


def pending(plan: dict[str, Any], language: str) -> str | None:
    """The defect that the plan meets in this language, or None."""
    for frame, step, before in _walk(plan["dataset"], plan["tables"]):
        found = _in_cpp(frame, step, before) if language == "cpp" else _in_python(frame, step, before)
        if found is not None:
            return found
    kind = plan["result"]["kind"]
    if kind == "mean" and _has_large(plan):
        return "mean() overflows"
    joins = any(step["op"] == "join" for step in plan["dataset"]["steps"])
    if (kind == "unique" or joins) and _has_negative_zero(table["rows"] for table in plan["tables"]):
        return "0.0 and -0.0 are different keys"
    if language == "cpp" and kind in ("unique", "min", "max") and _has_large(plan):
        return "unsigned integers beyond int64"
    return None


def _walk(node: dict[str, Any], tables: list[Any]) -> Iterator[tuple[Frame, dict[str, Any], list[str]]]:
    """Every step with the rows that it sees, and the steps before it."""
    frame = oracle.load(tables[node["source"]["table"]])
    before: list[str] = []
    yield frame, {"op": "source", **node["source"]}, before
    for step in node["steps"]:
        for other in step.get("others", []):
            yield from _walk(other, tables)
        yield frame, step, before
        before = [*before, step["op"]]
        try:
            frame = oracle.apply(frame, step, tables)
        except (Unsupported, Overflows):
            return


def _in_python(frame: Frame, step: dict[str, Any], before: list[str]) -> str | None:
    if step["op"] in FUNCTIONS and _has_nulls(frame):
        return "functions fail if the first rows of a column are null"
    keys = [*step.get("keys", []), *step.get("on", [])]
    if any(frame.kinds.get(key) == "dictionary<string>" for key in keys):
        return "dictionaries are no keys"
    if keys and _has_negative_zero([[[*row.values()] for row in frame.rows]]):
        return "0.0 and -0.0 are different keys"
    if keys and "with_column" in before and any(value != value for row in frame.rows for value in row.values()):
        return "NaNs of different bits are different keys"
    if step["op"] == "filter" and "filter" in before:
        return "a filter of a Parquet file also evaluates rows that an earlier filter drops, and may fail on them"
    if step["op"] == "store" and step["format"] == "csv" and len(frame.kinds) == 1 and _has_nulls(frame):
        return "a null in the only column of a CSV file is an empty line, which readers skip"
    if any(function == "mean" for function, _ in step.get("aggregates", [])) and _has_large_integers(frame):
        return "mean() overflows"
    return None


def _in_cpp(frame: Frame, step: dict[str, Any], before: list[str]) -> str | None:
    if "dictionary<string>" in frame.kinds.values():
        return "dictionaries become strings"
    if not frame.rows:
        return "a dataset without rows may lose its columns"
    if step["op"] in FUNCTIONS and _has_nulls(frame):
        return "functions fail if the first rows of a column are null"
    if "expression" in step:
        kinds = {frame.kinds[name] for name in columns(step["expression"])}
        if any(kind.startswith("decimal") for kind in kinds):
            return "decimals cannot be compared"
        if any(row[name] != row[name] for row in frame.rows for name in columns(step["expression"])):
            return "filters disagree about NaN"
    if step["op"] == "with_column" and not _has_only_wide_types(frame, step["expression"]):
        return "columns of expressions have other types than in Python"
    if step["op"] == "split" and len(frame.rows) % step["parts"]:
        return "parts have other sizes than in Python"
    if "zip" in before and step["op"] in CUTS:
        return "a part of a zip fails"
    if step["op"] == "sample" and 0 < step["fraction"] < 1:
        return "random_sample() draws other rows than in Python"
    return _in_python(frame, step, before)


def _has_only_wide_types(frame: Frame, expression: Any) -> bool:
    kinds = {kind_of(expression, frame.kinds), *(frame.kinds[name] for name in columns(expression))}
    return kinds <= {"int64", "float64", "bool"}


def _has_nulls(frame: Frame) -> bool:
    return any(value is None for row in frame.rows for value in row.values())


def _has_large_integers(frame: Frame) -> bool:
    return any(isinstance(value, int) and abs(value) > 2**53 for row in frame.rows for value in row.values())


def _has_negative_zero(tables: Iterable[list[list[Any]]]) -> bool:
    values = (value for rows in tables for row in rows for value in row)
    return any(isinstance(value, float) and value == 0 and math.copysign(1, value) < 0 for value in values)


def _has_large(plan: dict[str, Any]) -> bool:
    return any(
        isinstance(value, int) and abs(value) > 2**53
        for table in plan["tables"]
        for row in table["rows"]
        for value in row
    )
