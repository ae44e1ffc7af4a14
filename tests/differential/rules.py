"""The table of rules in docs/data.md, and for each rule the plan and the rows that show it."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import Any

from differential.files import Plan

DOCS = Path(__file__).resolve().parents[2] / "docs/data.md"
NAN = float("nan")
COLUMNS = ("NaN", "null", "overflow or promotion")


def documented() -> dict[str, dict[str, str]]:
    """The cells of the table under "Rules", by operation."""
    section = DOCS.read_text().split("## Rules\n")[1].split("\n## ")[0]
    lines = list(takewhile(lambda line: line.startswith("|"), section[section.index("| operation") :].splitlines()))
    assert [cell.strip() for cell in lines[0].strip("|").split("|")] == ["operation", *COLUMNS]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return {row[0]: dict(zip(COLUMNS, row[1:], strict=True)) for row in rows}


def _plan(step: dict[str, Any] | None = None, result: dict[str, Any] | None = None) -> Plan:
    values = [0.0, NAN, -0.0, None, 2.0, NAN, -1.0]
    rows = [[value, index] for index, value in enumerate(values)]
    table = {"columns": [["f", "float64"], ["i", "int64"]], "rows": rows}
    steps = [] if step is None else [step, {"op": "select", "columns": [_shown(step)]}]
    source = {"table": 0, "from": "parquet", "files": 2, "group": 2}
    return {"tables": [table], "dataset": {"source": source, "steps": steps}, "result": result or {"kind": "rows"}}


def _shown(step: dict[str, Any]) -> str:
    return {"with_column": "made", "groupby": "sum(i)"}.get(step["op"], "i")


def _filter(expression: list[Any]) -> Plan:
    return _plan({"op": "filter", "expression": expression})


def _made(expression: list[Any]) -> Plan:
    return _plan({"op": "with_column", "name": "made", "expression": expression})


def _joined(how: str) -> Plan:
    """With the distinct values of the same column."""
    other: dict[str, Any] = {"source": {"table": 1, "from": "memory", "chunks": 1}, "steps": []}
    step = {"op": "join", "others": [other], "how": how, "on": ["f"], "right_on": ["f"], "suffix": "_right"}
    plan = _plan(step)
    rows = [[value] for value in (0.0, NAN, 2.0, -1.0, None)]
    return plan | {"tables": [*plan["tables"], {"columns": [["f", "float64"]], "rows": rows}]}


def _value(function: str) -> Plan:
    return _plan(result={"kind": function, "column": "f", "ignore_nulls": True})


INDICES = list(range(7))
F = ["col", "f"]
LESS = ["<", F, ["lit", 1.0]]
# The documented operation, a plan, and the values of its column (or its value) that the rules require.
EXAMPLES: list[tuple[str, Plan, Any]] = [
    ("`<`, `<=`, `>`, `>=`, `==`", _made(LESS), [True, False, True, None, False, False, True]),
    ("`!=`", _filter(["!=", F, ["lit", 2.0]]), [0, 1, 2, 5, 6]),
    ("`in`", _filter(["in", F, [0.0]]), [0, 2]),
    ("`not in`", _filter(["not in", F, [0.0]]), [1, 3, 4, 5, 6]),
    ("`and`, `or`", _filter(["or", LESS, ["is None", F]]), [0, 2, 3, 6]),
    ("`and`, `or`", _made(["and", LESS, ["<", ["col", "i"], ["lit", 0]]]), [False] * 7),
    ("`not`", _filter(["not", LESS]), [1, 4, 5]),
    ("`sort`", _plan({"op": "sort", "keys": ["f"], "descending": False}), [6, 0, 2, 4, 1, 5, 3]),
    ("`sort`", _plan({"op": "sort", "keys": ["f"], "descending": True}), [4, 0, 2, 6, 1, 5, 3]),
    ("`sum`", _value("sum"), NAN),
    ("`mean`, `std`", _value("mean"), NAN),
    ("`min`, `max`", _value("min"), -1.0),
    ("`min`, `max`", _value("max"), 2.0),
    ("`groupby`", _plan({"op": "groupby", "keys": ["f"], "aggregates": [["sum", "i"]]}), [6, 2, 4, 6, 3]),
    ("`join`", _joined("inner"), [0, 1, 2, 4, 5, 6]),
    ("`join`", _joined("anti"), [3]),
    ("`unique`", _value("unique"), [0.0, NAN, 2.0, -1.0]),
    (
        "`map`, `flat_map`, `map_batches`, `add_column`",
        _plan({"op": "map", "function": "identity", "column": "f"}),
        INDICES,
    ),
]
