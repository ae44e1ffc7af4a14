"""Aggregates without a grouped function in Arrow, compared with pandas and numpy over random groups."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trireme.data
from trireme.data.aggregate import (
    AggregateFnV2,
    ApproximateQuantile,
    ApproximateTopK,
    AsList,
    Count,
    CountDistinct,
    Mean,
    MissingValuePercentage,
    Quantile,
    Sum,
    ValueCounter,
    ZeroPercentage,
)


def _random_table(seed: int) -> pa.Table:
    """Groups with nulls, NaN, zeros of both signs; a group may have only nulls, or one row."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 400))
    keys = pa.array(rng.integers(0, 12, rows), mask=rng.random(rows) < 0.05)
    x = rng.choice([0.0, -0.0, 1.5, -2.0, 7.25, math.nan, 1e9], rows)
    n = rng.integers(-3, 4, rows)
    null = rng.random(rows) < rng.choice([0.0, 0.3, 0.9])
    text = rng.choice(["a", "b", "", "ä"], rows)
    return pa.table(
        {"k": keys, "x": pa.array(x, mask=null), "n": pa.array(n, mask=null), "s": pa.array(text, mask=null)}
    )


def _groups(table: pa.Table) -> list[tuple[Any, pa.Table]]:
    """(key, rows), sorted by key, null last."""
    keys = sorted({k for k in table["k"].to_pylist() if k is not None})
    groups = [(key, table.filter(pc.equal(table["k"], key))) for key in keys]
    nulls = table.filter(pc.is_null(table["k"]))
    return [*groups, (None, nulls)] if nulls.num_rows else groups


def _values(table: pa.Table, name: str) -> list[Any]:
    return table[name].to_pylist()


def _known(values: list[Any]) -> list[Any]:
    return [v for v in values if v is not None and not (isinstance(v, float) and math.isnan(v))]


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, float) and isinstance(second, float):
        return (math.isnan(first) and math.isnan(second)) or first == pytest.approx(second, rel=1e-12)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_same, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_same(first[key], second[key]) for key in first)
    return bool(first == second)


def _distinct(values: list[Any], with_null: bool) -> int:
    known = len(set(_known(values)))
    nan = any(isinstance(v, float) and math.isnan(v) for v in values)
    return known + nan + (with_null and None in values)


def _counted(values: list[Any]) -> dict[str, list[Any]]:
    given = [v for v in values if v is not None]
    counts = Counter("nan" if isinstance(v, float) and math.isnan(v) else v for v in given)
    shown = [math.nan if v == "nan" else v for v in counts]
    return {"values": shown, "counts": list(counts.values())}


def _quantile(values: list[Any], q: float) -> float | None:
    known = _known(values)
    return float(np.quantile(known, q)) if known else None


def _percentage(part: int, rows: int) -> float | None:
    return 100.0 * part / rows if rows else None


# The aggregate, and the same from a list of values.
CASES = [
    (Quantile("x", 0.3), lambda rows: _quantile(_values(rows, "x"), 0.3)),
    (Quantile("n"), lambda rows: _quantile(_values(rows, "n"), 0.5)),
    (
        Quantile("n", ignore_nulls=False, alias_name="strict"),
        lambda rows: None if None in _values(rows, "n") else _quantile(_values(rows, "n"), 0.5),
    ),
    (
        ApproximateQuantile("x", [0.0, 0.25, 1.0]),
        lambda rows: (
            [_quantile(_values(rows, "x"), q) for q in (0.0, 0.25, 1.0)] if _known(_values(rows, "x")) else None
        ),
    ),
    (CountDistinct("x"), lambda rows: _distinct(_values(rows, "x"), False)),
    (CountDistinct("s", ignore_nulls=False), lambda rows: _distinct(_values(rows, "s"), True)),
    (AsList("x"), lambda rows: _values(rows, "x")),
    (AsList("n", ignore_nulls=True), lambda rows: [v for v in _values(rows, "n") if v is not None]),
    (ValueCounter("n"), lambda rows: _counted(_values(rows, "n"))),
    (
        MissingValuePercentage("x"),
        lambda rows: _percentage(rows.num_rows - len(_known(_values(rows, "x"))), rows.num_rows),
    ),
    (
        ZeroPercentage("n"),
        lambda rows: _percentage(_values(rows, "n").count(0), rows.num_rows - _values(rows, "n").count(None)),
    ),
    (
        ZeroPercentage("x", ignore_nulls=False, alias_name="of all"),
        lambda rows: _percentage(sum(v == 0 for v in _values(rows, "x")), rows.num_rows),
    ),
    (Mean("n"), lambda rows: float(np.mean(_known(_values(rows, "n")))) if _known(_values(rows, "n")) else None),
]


@pytest.mark.parametrize("seed", range(25))
def test_groups_agree_with_numpy(seed: int) -> None:
    table = _random_table(seed)
    found = trireme.data.from_arrow(table).groupby("k").aggregate(*(case[0] for case in CASES)).take_all()
    groups = _groups(table)
    assert [row["k"] for row in found] == [key for key, _ in groups]
    for row, (key, rows) in zip(found, groups, strict=True):
        for aggregate, expected in CASES:
            assert _same(row[aggregate.name], expected(rows)), (seed, key, aggregate.name)


@pytest.mark.parametrize("seed", range(25))
def test_all_rows_agree_with_numpy(seed: int) -> None:
    table = _random_table(seed)
    found = trireme.data.from_arrow(table, override_num_blocks=3).aggregate(*(case[0] for case in CASES))
    for aggregate, expected in CASES:
        assert _same(found[aggregate.name], expected(table)), (seed, aggregate.name)


def test_agreement_with_pandas() -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"k": rng.integers(0, 50, 5000), "x": rng.normal(size=5000)})
    frame.loc[rng.random(5000) < 0.1, "x"] = np.nan
    dataset = trireme.data.from_pandas(frame)
    found = dataset.groupby("k").aggregate(Quantile("x", 0.9), CountDistinct("x"), MissingValuePercentage("x"))
    expected = frame.groupby("k")["x"].agg([lambda x: x.quantile(0.9), "nunique", lambda x: 100 * x.isna().mean()])
    np.testing.assert_allclose(found.to_pandas().iloc[:, 1:].to_numpy(float), expected.to_numpy(float))


def test_approximate_quantiles_of_many_rows() -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(size=150_000), rng.exponential(size=50_000) * 100])
    rng.shuffle(values)
    asked = [0.0, 0.001, 0.01, 0.25, 0.5, 0.9, 0.999, 1.0]
    dataset = trireme.data.from_numpy(values).rename_columns({"data": "x"})
    (found,) = dataset.aggregate(ApproximateQuantile("x", asked)).values()
    # The error is in the rank, which is what a quantile approximates.
    ranks = np.searchsorted(np.sort(values), found) / len(values)
    np.testing.assert_allclose(ranks, asked, atol=0.003)
    assert (found[0], found[-1]) == (values.min(), values.max())


def test_frequent_values() -> None:
    values = ["a"] * 50 + ["b"] * 30 + ["c"] * 20 + [None] * 60
    np.random.default_rng(1).shuffle(values)
    dataset = trireme.data.from_items([{"x": value} for value in values])
    (found,) = dataset.aggregate(ApproximateTopK("x", 2)).values()
    assert found == [{"x": "a", "count": 50}, {"x": "b", "count": 30}]
    many = np.concatenate([np.repeat([1, 2, 3], [4000, 3000, 2000]), np.arange(10, 4010)])
    np.random.default_rng(1).shuffle(many)
    dataset = trireme.data.from_items([{"x": int(value)} for value in many], override_num_blocks=40)
    (found,) = dataset.aggregate(ApproximateTopK("x", 3, log_capacity=8)).values()
    assert [row["x"] for row in found] == [1, 2, 3]
    for row, count in zip(found, (4000, 3000, 2000), strict=True):
        assert count - len(many) / 2**8 <= row["count"] <= count


class SumOfSquares(AggregateFnV2):
    def __init__(self, on: str, ignore_nulls: bool = True) -> None:
        super().__init__(f"squares({on})", lambda: 0, on=on, ignore_nulls=ignore_nulls)

    def aggregate_block(self, block: pa.Table) -> Any:
        column = block[self.get_target_column()]
        if column.null_count == len(column) or (column.null_count and not self.ignore_nulls):
            return None
        return pc.sum(pc.multiply(column, column)).as_py()

    def combine(self, current_accumulator: Any, new: Any) -> Any:
        return current_accumulator + new

    def finalize(self, accumulator: Any) -> Any:
        return float(accumulator)


class Width(AggregateFnV2):
    """The number of values in all columns."""

    def __init__(self) -> None:
        super().__init__("width", lambda: 0, on=None, ignore_nulls=True)

    def aggregate_block(self, block: pa.Table) -> int:
        return int(block.num_columns * block.num_rows)

    def combine(self, current_accumulator: int, new: int) -> int:
        return current_accumulator + new


@pytest.mark.parametrize("seed", range(5))
def test_user_defined_aggregates(seed: int) -> None:
    table = _random_table(seed)
    dataset = trireme.data.from_arrow(table, override_num_blocks=2)
    found = dataset.groupby("k").aggregate(SumOfSquares("n"), Sum("n"), Width()).take_all()
    for row, (_, rows) in zip(found, _groups(table), strict=True):
        known = _known(_values(rows, "n"))
        assert row["squares(n)"] == (float(sum(v * v for v in known)) if known else None)
        assert row["sum(n)"] == (sum(known) if known else None)
        assert row["width"] == 4 * rows.num_rows
    whole = dataset.aggregate(SumOfSquares("n"), Count(), Width())
    known = _known(_values(table, "n"))
    assert whole["squares(n)"] == (float(sum(v * v for v in known)) if known else None)
    assert whole["width"] == 4 * table.num_rows
    strict = dataset.aggregate(SumOfSquares("n", ignore_nulls=False))["squares(n)"]
    assert (strict is None) == (None in _values(table, "n"))


def test_categories_and_empty_datasets() -> None:
    kinds = pa.array(["a", "b", "a", None]).dictionary_encode()
    dataset = trireme.data.from_arrow(pa.table({"k": [1, 1, 2, 2], "c": kinds}))
    aggregates = [AsList("c"), ValueCounter("c"), CountDistinct("c"), ApproximateTopK("c", 1)]
    rows = dataset.groupby("k").aggregate(*aggregates).take_all()
    assert [row["list(c)"] for row in rows] == [["a", "b"], ["a", None]]
    assert [row["value_counter(c)"]["counts"] for row in rows] == [[1, 1], [1]]
    assert [row["count_distinct(c)"] for row in rows] == [2, 1]
    empty = dataset.filter("k > 2")
    assert empty.groupby("k").aggregate(Quantile("k"), AsList("c"), CountDistinct("k")).take_all() == []
    whole = empty.aggregate(Quantile("k"), AsList("k"), CountDistinct("k"), MissingValuePercentage("k"))
    assert list(whole.values()) == [None, [], 0, None]


def test_errors_of_aggregates() -> None:
    dataset = trireme.data.from_items([{"k": 1, "s": "a", "l": [1]}])
    with pytest.raises(ValueError, match=r"Quantile\(q\) = 2"):
        Quantile("x", 2)
    with pytest.raises(ValueError, match=r"k=0"):
        ApproximateTopK("x", 0)
    with pytest.raises(ValueError, match=r"quantile\(s\): column 's' is string"):
        dataset.aggregate(Quantile("s"))
    with pytest.raises(ValueError, match=r"groupby\(k\): cannot compute quantile\(s\)"):
        dataset.groupby("k").aggregate(Quantile("s")).take_all()
    with pytest.raises(ValueError, match=r"Quantile\(\) needs a column"):
        dataset.aggregate(Quantile())
    with pytest.raises(ValueError, match="lists and structs cannot be counted"):
        dataset.aggregate(ValueCounter("l"))
