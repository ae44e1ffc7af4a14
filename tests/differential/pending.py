"""What cannot be the same in both languages, with the reason. Plans that meet it are skipped in C++, and counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from differential import oracle
from differential.oracle_expressions import Overflows, Unsupported


def pending(plan: dict[str, Any]) -> str | None:
    """Why C++ differs for this plan, or None."""
    for rows, step in _walk(plan["dataset"], plan["tables"]):
        if step["op"] == "split" and rows % step["parts"]:
            # recorded.json: rows of parts in C++, on which the positions of checkpoints depend.
            return "split() gives the additional rows to the last parts in C++ and to the first ones in Python"
    return None


def _walk(node: dict[str, Any], tables: list[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every step with the number of rows that it sees."""
    frame = oracle.load(tables[node["source"]["table"]])
    for step in node["steps"]:
        for other in step.get("others", []):
            yield from _walk(other, tables)
        yield len(frame.rows), step
        try:
            frame = oracle.apply(frame, step, tables)
        except (Unsupported, Overflows):
            return
