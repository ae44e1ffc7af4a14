"""Known defects that are not fixed yet. Plans that meet one are skipped and counted; a fix deletes its entry here."""

from __future__ import annotations

from collections.abc import Iterator
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
        found = _in_cpp(frame, step, before) if language == "cpp" else _in_python(frame, step)
        if found is not None:
            return found
    if language == "python" and plan["result"]["kind"] == "mean" and _has_large(plan):
        return "mean() overflows"
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


def _in_python(frame: Frame, step: dict[str, Any]) -> str | None:
    if step["op"] in FUNCTIONS and _has_nulls(frame):
        return "functions fail if the first rows of a column are null"
    keys = [*step.get("keys", []), *step.get("on", [])]
    if any(frame.kinds.get(key) == "dictionary<string>" for key in keys):
        return "dictionaries are no keys"
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
    if step["op"] == "with_column" and kind_of(step["expression"], frame.kinds) not in ("int64", "float64", "bool"):
        return "columns of expressions have other types than in Python"
    if step["op"] == "split" and len(frame.rows) % step["parts"]:
        return "parts have other sizes than in Python"
    if "zip" in before and step["op"] in CUTS:
        return "a part of a zip fails"
    if step["op"] == "sample" and 0 < step["fraction"] < 1:
        return "random_sample() draws other rows than in Python"
    return _in_python(frame, step)


def _has_nulls(frame: Frame) -> bool:
    return any(value is None for row in frame.rows for value in row.values())


def _has_large_integers(frame: Frame) -> bool:
    return any(isinstance(value, int) and abs(value) > 2**53 for row in frame.rows for value in row.values())


def _has_large(plan: dict[str, Any]) -> bool:
    return any(
        isinstance(value, int) and abs(value) > 2**53
        for table in plan["tables"]
        for row in table["rows"]
        for value in row
    )
