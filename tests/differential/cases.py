"""Plans that once disagreed, made smaller."""

from __future__ import annotations

import math
from typing import Any

from differential.files import Plan

ROWS = {"kind": "rows"}
MEMORY = {"table": 0, "from": "memory", "chunks": 1}


def _plan(
    tables: list[dict[str, Any]], source: dict[str, Any], steps: list[dict[str, Any]], result: dict[str, Any] = ROWS
) -> Plan:
    return {"tables": tables, "dataset": {"source": source, "steps": steps}, "result": result}


def _numbers(*rows: list[Any], kind: str = "int64") -> dict[str, Any]:
    return {"columns": [["a", kind], ["b", "int64"]], "rows": list(rows)}


def _zipped() -> Plan:
    other = {"source": {"table": 1, "from": "memory", "chunks": 3}, "steps": []}
    steps = [{"op": "zip", "others": [other]}, {"op": "repartition", "blocks": 3}]
    rows = [[number, -number] for number in range(5)]
    return _plan([_numbers(*rows), _numbers(*rows)], {"table": 0, "from": "parquet", "files": 1, "group": 100}, steps)


def _float_filter(source: str, expression: list[Any]) -> Plan:
    """Issues of statistics, which ignore NaN: a row group of numbers, one with NaN, one of NaN only."""
    values = [-1.0, 0.0, -0.0, 2.0, 3.0, math.nan, math.nan, None]
    place = {"table": 0, "from": "memory", "chunks": 3}
    if source == "parquet":
        place = {"table": 0, "from": "parquet", "files": 1, "group": 2}
    rows = [[value, index] for index, value in enumerate(values)]
    return _plan([_numbers(*rows, kind="float64")], place, [{"op": "filter", "expression": expression}])


_FLOAT = ["col", "a"]
_FLOAT_FILTERS: dict[str, list[Any]] = {
    "not (a < 0)": ["not", ["<", _FLOAT, ["lit", 0]]],
    "a != 3.0": ["!=", _FLOAT, ["lit", 3.0]],
    "not (a >= -1)": ["not", [">=", _FLOAT, ["lit", -1]]],
    "a != a": ["!=", _FLOAT, _FLOAT],
    "a not in [3.0]": ["not in", _FLOAT, [3.0]],
    "a in [0.0]": ["in", _FLOAT, [0.0]],
}


def _of_dictionaries(op: dict[str, Any]) -> Plan:
    """Keys that one dataset stores as a dictionary and the other as text."""
    other = {"source": {"table": 1, "from": "parquet", "files": 1, "group": 2}, "steps": []}
    tables = [
        _numbers(["b", 1], [None, 2], ["a", 3], ["b", 4], kind="dictionary<string>"),
        _numbers(["b", 10], ["c", 20], [None, 30], kind="string"),
    ]
    return _plan(tables, {"table": 0, "from": "parquet", "files": 2, "group": 1}, [op | {"others": [other]}])


_NONE = {"op": "filter_rows", "function": "is_missing", "column": "b"}
_JOIN = {"op": "join", "on": ["a"], "right_on": ["a"], "suffix": "_right"}


def _ratio(column: str) -> dict[str, Any]:
    """0.0 / 0.0 has other bits than other NaNs."""
    return {"op": "with_column", "name": column, "expression": ["/", ["col", column], ["col", column]]}


CASES: dict[str, Plan] = {
    **{
        f"{text} from {source}": _float_filter(source, expression)
        for text, expression in _FLOAT_FILTERS.items()
        for source in ("memory", "parquet")
    },
    **{f"a {how} join of a dictionary": _of_dictionaries(_JOIN | {"how": how}) for how in ("inner", "left", "anti")},
    "a shuffled union of dictionaries": _plan(
        [_numbers(["b", 1], [None, 2], kind="dictionary<string>"), _numbers(["c", 3], kind="dictionary<string>")],
        {"table": 0, "from": "parquet", "files": 1, "group": 1},
        [
            {"op": "shuffle", "seed": 1, "window": None},
            {
                "op": "union",
                "others": [{"source": {"table": 1, "from": "parquet", "files": 1, "group": 1}, "steps": []}],
            },
            {"op": "sort", "keys": ["b"], "descending": False},
        ],
    ),
    "a union with a dictionary": _of_dictionaries({"op": "union"}),
    "a negative constant for a row group of unsigned numbers": _plan(
        [_numbers([4, 1], [2**32 - 1, 2], kind="uint32")],
        {"table": 0, "from": "parquet", "files": 1, "group": 1},
        [{"op": "filter", "expression": [">=", ["col", "a"], ["lit", -1]]}],
    ),
    "constants in no row of a small type": _plan(
        [_numbers([-1, 1], [44, 2], [0, 3], kind="int8")],
        MEMORY,
        [{"op": "filter", "expression": ["in", ["col", "a"], [300, 255, 2**40]]}],
    ),
    "a file without row groups": _plan(
        [_numbers()], MEMORY, [{"op": "store", "format": "parquet"}, {"op": "drop", "columns": ["a"]}]
    ),
    "a part of a zip with parts of several fragments": _plan(
        [_numbers([1, 2], [3, 4], [5, 6]), _numbers([1, 2], [3, 4], [5, 6])],
        {"table": 0, "from": "parquet", "files": 2, "group": 3},
        [
            {"op": "groupby", "keys": ["a"], "aggregates": [["count", None]]},
            {"op": "zip", "others": [{"source": {"table": 1, "from": "memory", "chunks": 1}, "steps": []}]},
            {"op": "train_test", "test": 0.5, "part": 0},
        ],
    ),
    "NaNs of different bits as keys": _plan(
        [_numbers([0.0, 1], [float("inf"), 2], [float("nan"), 3], [-0.0, 4], kind="float64")],
        MEMORY,
        [_ratio("a"), {"op": "groupby", "keys": ["a"], "aggregates": [["sum", "b"]]}],
    ),
    "sums and means of groups beyond floats": _plan(
        [_numbers([1, 2**62], [1, 1], [1, -(2**62)], [2, 2**62], [2, 2**62 - 1])],
        MEMORY,
        [{"op": "groupby", "keys": ["a"], "aggregates": [["sum", "b"], ["mean", "b"]]}],
    ),
    "a group by a dictionary": _plan(
        [_numbers(["b", 1], [None, 2], ["b", 3], kind="dictionary<string>")],
        MEMORY,
        [{"op": "groupby", "keys": ["a"], "aggregates": [["sum", "b"]]}],
    ),
    "unsigned integers beyond the signed ones": _plan(
        [_numbers([2**64 - 1, 1], [9, 2], kind="uint64")],
        MEMORY,
        [{"op": "filter", "expression": ["not in", ["col", "a"], [9, 1]]}],
    ),
    "unsigned integers beyond the signed ones, and zero": _plan(
        [_numbers([2**64 - 1, 1], [0, 2], [None, 3], kind="uint64")],
        {"table": 0, "from": "parquet", "files": 1, "group": 1},
        [{"op": "filter", "expression": ["not in", ["col", "a"], [0, 3]]}],
    ),
    "a sum that is null and would not fit": _plan(
        [_numbers([2**63 - 1, 1], [2**63 - 1, 2], [None, 3])],
        MEMORY,
        [],
        {"kind": "sum", "column": "a", "ignore_nulls": False},
    ),
    "a function that fails in rows after a limit": _plan(
        [_numbers([1, 1], [2, 2], [2**63 - 1, 3])],
        MEMORY,
        [{"op": "limit", "rows": 2}, {"op": "map", "function": "add_one", "column": "a"}, _NONE],
    ),
    "a function that fails in rows before a part": _plan(
        [_numbers([1, 1], [2**63 - 1, 2], [3, 3])],
        MEMORY,
        [
            {"op": "split_at", "indices": [2], "part": 1},
            {"op": "map", "function": "add_one", "column": "a"},
            _NONE,
        ],
    ),
    "a part of a zip with several fragments": _zipped(),
    "uneven parts": _plan([_numbers([1, 2], [3, 4])], MEMORY, [{"op": "split", "parts": 3, "part": 1}]),
    "more parts than rows": _plan([_numbers([1, 2])], MEMORY, [{"op": "split", "parts": 4, "part": 3}]),
    "a mean beyond the type of the sum": _plan(
        [_numbers([2**64 - 1, 1], [9, 2], kind="uint64")],
        MEMORY,
        [],
        {"kind": "mean", "column": "a", "ignore_nulls": True},
    ),
    "a minimum of fragments with only NaN": _plan(
        [_numbers([float("nan"), 1], [-5.25, 2], [float("nan"), 3], kind="float64")],
        {"table": 0, "from": "parquet", "files": 3, "group": 1},
        [],
        {"kind": "min", "column": "a", "ignore_nulls": True},
    ),
    "groups of no rows": _plan(
        [_numbers()], MEMORY, [{"op": "groupby", "keys": ["a"], "aggregates": [["count", None], ["mean", "b"]]}]
    ),
    "a sort by a dictionary": _plan(
        [_numbers(["b", 1], [None, 2], ["a", 3], kind="dictionary<string>")],
        MEMORY,
        [{"op": "sort", "keys": ["a"], "descending": False}],
    ),
    "a function whose first rows are null": _plan(
        [_numbers([None, 1], ["a", 2], kind="string")],
        {"table": 0, "from": "parquet", "files": 2, "group": 1},
        [{"op": "map", "function": "add_one", "column": "b"}],
    ),
    "a comparison of decimals": _plan(
        [_numbers(["1.50", 1], ["0.25", 2], [None, 3], kind="decimal(9, 2)")],
        MEMORY,
        [{"op": "filter", "expression": ["not", [">", ["col", "a"], ["col", "a"]]]}],
    ),
    "NaN in a row group that statistics exclude": _plan(
        [_numbers([-1.0, 0], [0.0, 1], [-0.0, 2], [2.0, 3], [3.0, 4], [float("nan"), 5], kind="float64")],
        {"table": 0, "from": "parquet", "files": 1, "group": 2},
        [{"op": "filter", "expression": ["not", [">=", ["col", "a"], ["lit", -1]]]}],
    ),
    "a filter for both zeros": _plan(
        [_numbers([-1.0, 0], [0.0, 1], [-0.0, 2], [float("nan"), 5], kind="float64")],
        {"table": 0, "from": "parquet", "files": 1, "group": 1},
        [{"op": "filter", "expression": ["in", ["col", "a"], [0.0]]}],
    ),
    "a filter with a value to whose type a statistic cannot be converted": _plan(
        [_numbers([None, 1], [-(2**63), 2])],
        {"table": 0, "from": "parquet", "files": 1, "group": 2},
        [{"op": "filter", "expression": ["not in", ["col", "a"], [0, 5]]}],
    ),
    "the same for numbers beyond int64": _plan(
        [_numbers([None, 1], [2**64 - 1, 2], kind="uint64")],
        {"table": 0, "from": "parquet", "files": 1, "group": 2},
        [{"op": "filter", "expression": ["not in", ["col", "a"], [5]]}, {"op": "select", "columns": ["b"]}],
    ),
    "a deviation of small numbers beside a large one in another group": _plan(
        [_numbers([3, 1], [9, 1], [-(2**63), 2])],
        MEMORY,
        [{"op": "groupby", "keys": ["b"], "aggregates": [["std", "a"]]}],
    ),
    "means and deviations of decimals in groups": _plan(
        [_numbers(["1.50", 1], ["0.25", 1], [None, 2], ["0.10", 2], ["0.25", 2], kind="decimal(9, 2)")],
        MEMORY,
        [{"op": "groupby", "keys": ["b"], "aggregates": [["mean", "a"], ["std", "a"], ["sum", "a"]]}],
    ),
    **{
        f"the {function} of decimals": _plan(
            [_numbers(["1.50", 1], ["0.25", 1], [None, 2], ["0.10", 2], kind="decimal(9, 2)")],
            {"table": 0, "from": "parquet", "files": 2, "group": 1},
            [],
            {"kind": function, "column": "a", "ignore_nulls": True},
        )
        for function in ("mean", "std")
    },
    "a filter after a shuffle": _plan(
        [_numbers(*([number, -number] for number in range(20)))],
        {"table": 0, "from": "parquet", "files": 3, "group": 3},
        [{"op": "shuffle", "seed": 5, "window": None}, {"op": "filter", "expression": [">", ["col", "a"], ["lit", 4]]}],
    ),
    "a count of filtered rows that have a new column": _plan(
        [_numbers([1, 1], [2, None], [3, 3])],
        {"table": 0, "from": "parquet", "files": 1, "group": 2},
        [
            {"op": "filter", "expression": ["is not None", ["col", "b"]]},
            {"op": "block_order", "seed": 1},
            {"op": "with_column", "name": "new", "expression": ["<=", ["col", "a"], ["col", "a"]]},
            {"op": "limit", "rows": 100},
        ],
    ),
}
