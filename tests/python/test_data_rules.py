"""The rules of docs/data.md for NaN, null, overflow and promotion, against numpy, pandas and pyarrow."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import trireme.data
from trireme import _core
from trireme.data.expressions import col

_FLOATS = [-1.0, 0.0, -0.0, 2.0, 3.0, float("nan")]
_FILTERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "not (f < 0)": lambda f: ~(f < 0),
    "f != 3.0": lambda f: f != 3.0,
    "not (f >= -1)": lambda f: ~(f >= -1),
    "f != f": lambda f: f != f,
    "f not in [3.0]": lambda f: ~np.isin(f, [3.0]),
    "f in [0.0]": lambda f: np.isin(f, [0.0]),
    "f in [0, 3]": lambda f: np.isin(f, [0, 3]),
    "f not in [0]": lambda f: ~np.isin(f, [0]),
    "f > 0": lambda f: f > 0,
    "not (f < 0 or id > 4)": lambda f: ~((f < 0) | (np.arange(6) > 4)),
    "f < 3 and not (f == 2)": lambda f: (f < 3) & ~(f == 2),
    "not (f > -1 and id < 5)": lambda f: ~((f > -1) & (np.arange(6) < 5)),
}


def _floats_dataset(folder: Path, group_rows: int | None, kind: Any) -> trireme.data.Dataset:
    table = pa.table({"id": np.arange(6), "f": pa.array(_FLOATS, kind)})
    if group_rows is None:
        return trireme.data.from_arrow(table)
    pq.write_table(table, folder / "f.parquet", row_group_size=group_rows)
    return trireme.data.read_parquet(folder)


@pytest.mark.parametrize("group_rows", [None, 1, 2, 6])
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
def test_filters_of_floats_give_the_rows_of_numpy(tmp_path: Path, group_rows: int | None, kind: Any) -> None:
    dataset = _floats_dataset(tmp_path, group_rows, kind)
    values = np.array(_FLOATS)
    for text, mask in _FILTERS.items():
        expected = np.flatnonzero(mask(values)).tolist()
        filtered = dataset.filter(text)
        assert [row["id"] for row in filtered.take_all()] == expected, text
        assert [row["id"] for row in filtered.select_columns(["id"]).take_all()] == expected, text
        assert filtered.count() == len(expected), text
    opaque = ~(col("f") >= -1)
    assert [row["id"] for row in dataset.filter(opaque).take_all()] == [5]
    if group_rows is not None:
        read = trireme.data.read_parquet(tmp_path, filter=opaque, columns=["id"])
        assert read.take_all() == [{"id": 5}]


def test_row_groups_are_still_pruned_where_that_is_sound(tmp_path: Path) -> None:
    dataset = _floats_dataset(tmp_path, 1, pa.float64())  # the row group with only NaN has no statistics
    for text, groups in (("f > 2", 2), ("id > 4 and f != 3.0", 1), ("not (id <= 4 or f < 0)", 1), ("not (f < 0)", 6)):
        assert dataset.filter(text).num_blocks() == groups, text


def test_floats_in_structs_and_partitions(tmp_path: Path) -> None:
    table = pa.table({"id": np.arange(6), "s": [{"f": value} for value in _FLOATS], "p": [0, 0, 0, 1, 1, 1]})
    nested = pc.field("s", "f")
    trireme.data.from_arrow(table).write_parquet(tmp_path, partition_cols=["p"])
    dataset = trireme.data.read_parquet(tmp_path)
    assert sorted(row["id"] for row in dataset.filter(~(nested < 0)).take_all()) == [1, 2, 3, 4, 5]
    late = dataset.filter(~(nested < 0)).filter("p == 1")
    assert sorted(row["id"] for row in late.take_all()) == [3, 4, 5]
    assert all("p=1" in file.name for file in late._plan.pieces())


def test_nulls_in_conditions() -> None:
    """`not` and comparisons with null are null, which drops the row; `in` is never null."""
    rows = trireme.data.from_arrow(pa.table({"id": [0, 1, 2, 3], "x": [0, 1, 3, None]}))
    for text, expected in (
        ("x != 3", [0, 1]),
        ("not (x == 3)", [0, 1]),
        ("x in [3]", [2]),
        ("x not in [3]", [0, 1, 3]),
        ("x not in [0, 3]", [1, 3]),
        ("x in [0, None]", [0, 3]),
        ("x == None", [3]),
        ("x is not None", [0, 1, 2]),
    ):
        assert [row["id"] for row in rows.filter(text).take_all()] == expected, text


def test_sums_and_means_do_not_wrap_around() -> None:
    moments = [1_700_000_000_000_000_000 + step for step in range(8)]
    rows = trireme.data.from_arrow(pa.table({"k": [0, 1] * 4, "t": moments}))
    assert rows.mean("t") == sum(moments) / 8
    with pytest.raises(OverflowError, match=r"sum\(t\): 36893488147419103232 does not fit"):
        trireme.data.from_arrow(pa.table({"t": [2**62] * 8})).sum("t")
    assert trireme.data.from_arrow(pa.table({"t": [2**62, 2**62, -(2**62), -7]})).sum("t") == 2**62 - 7
    means = rows.groupby("k").mean("t").take_all()
    assert [row["mean(t)"] for row in means] == pytest.approx([np.mean(moments[0::2]), np.mean(moments[1::2])])
    with pytest.raises(OverflowError, match=r"sum\(t\)"):
        trireme.data.from_arrow(pa.table({"k": [0] * 4, "t": [2**62] * 4})).groupby("k").sum("t").take_all()
    fits = trireme.data.from_arrow(pa.table({"k": [0, 1, 2], "t": [2**62] * 3})).groupby("k").sum("t").take_all()
    assert [row["sum(t)"] for row in fits] == [2**62] * 3


def test_standard_deviations_do_not_depend_on_fragments() -> None:
    moments = [1_700_000_000_000_000_000 + step for step in range(40)]
    table = pa.table({"t": moments, "d": pa.array(map(Decimal, range(40))), "k": [0] * 40})
    for blocks in (1, 4, 40):
        rows = trireme.data.from_arrow(table, override_num_blocks=blocks)
        assert rows.groupby("k").std("t").take(1)[0]["std(t)"] == pytest.approx(rows.std("t"), rel=1e-12)
        assert rows.std("t") == pytest.approx(np.std(np.arange(40), ddof=1), rel=1e-12)
        assert rows.std("d") == pytest.approx(np.std(np.arange(40), ddof=1), rel=1e-12)


@pytest.mark.parametrize(("first", "last"), [(1, 1.5), (None, 7)])
def test_aggregates_of_rows_with_wider_types_than_the_first(first: Any, last: Any) -> None:
    rows = trireme.data.range(60, override_num_blocks=6).map(lambda row: {"v": last if row["id"] >= 50 else first})
    agg = trireme.data.aggregate
    assert rows.unique("v") == [first, last]
    found = rows.aggregate(agg.CountDistinct("v", ignore_nulls=False), agg.AsList("v"), agg.Quantile("v", 1.0))
    assert list(found.values()) == [2, [first] * 50 + [last] * 10, last]
    big = trireme.data.range(60, override_num_blocks=6).map(lambda row: {"v": 0.5 if row["id"] >= 50 else 2**53 + 1})
    with pytest.raises(trireme.data.DataError, match=r"unique\(v\)"):
        big.unique("v")


def test_extremes_of_categories_are_those_of_their_values() -> None:
    rows = trireme.data.from_arrow(pa.table({"k": [1, 1, 2], "c": pa.array(["b", "a", "c"]).dictionary_encode()}))
    assert (rows.min("c"), rows.max("c")) == ("a", "c")
    assert [row["max(c)"] for row in rows.groupby("k").max("c").take_all()] == ["b", "c"]


def test_files_are_unified_by_name(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([1, 2], pa.int32()), "s": ["a", "b"]}), tmp_path / "a.parquet")
    wide = pa.table({"s": pa.array(["c"], pa.large_string()), "x": [2**40], "only": [1.5]})
    pq.write_table(wide, tmp_path / "b.parquet")
    rows = trireme.data.read_parquet([str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")])
    assert rows.schema() == pa.schema([("x", pa.int64()), ("s", pa.large_string()), ("only", pa.float64())])
    expected = [
        {"x": 1, "s": "a", "only": None},
        {"x": 2, "s": "b", "only": None},
        {"x": 2**40, "s": "c", "only": 1.5},
    ]
    assert rows.take_all() == expected
    assert list(rows.iter_rows()) == expected
    assert rows.filter("only > 1").take_all() == expected[2:]
    with pytest.raises(trireme.data.DataError, match=r"column 'x' is int64 in .*b.parquet and int32 in .*a.parquet"):
        trireme.data.read_parquet(tmp_path, strict=True).take_all()
    pq.write_table(pa.table({"x": ["text"]}), tmp_path / "c.parquet")
    with pytest.raises(trireme.data.DataError, match=r"column 'x' is string in .*c.parquet"):
        trireme.data.read_parquet(tmp_path).schema()


def test_layouts_of_one_type_are_unified() -> None:
    plain = pa.table({"k": ["a", "b"], "n": pa.array([1, 2], pa.int32())})
    large = pa.table({"k": pa.array(["b", "c"], pa.large_string()), "n": [3, 4]})
    coded = pa.table({"k": pa.array(["b", "a", None]).dictionary_encode(), "n": [5, 6, 7]})
    sets = [trireme.data.from_arrow(table) for table in (plain, large, coded)]
    together = sets[0].union(sets[1], sets[2])
    assert [row["k"] for row in together.take_all()] == ["a", "b", "b", "c", "b", "a", None]
    assert together.schema() == pa.schema([("k", pa.large_string()), ("n", pa.int64())])
    assert [row["k"] for row in together.iter_rows()] == ["a", "b", "b", "c", "b", "a", None]
    for left, right, expected in ((0, 1, [("b", 2, 3)]), (0, 2, [("a", 1, 6), ("b", 2, 5)]), (1, 2, [("b", 3, 5)])):
        joined = sets[left].join(sets[right], on="k", right_suffix="_r")
        assert [tuple(row.values()) for row in joined.take_all()] == expected
    by_number = sets[0].join(trireme.data.from_arrow(pa.table({"n": [2.0], "v": [9]})), on="n")
    assert by_number.take_all() == [{"n": 2.0, "k": "b", "v": 9}]
    with pytest.raises(ValueError, match="cannot match k: string with n: int64"):
        sets[0].join(sets[1], on="k", right_on="n").take_all()
    assert sets[2].groupby("k").sum("n").take_all() == [
        {"k": "a", "sum(n)": 6},
        {"k": "b", "sum(n)": 5},
        {"k": None, "sum(n)": 7},
    ]
    assert [row["k"] for row in sets[2].sort("k").take_all()] == ["a", "b", None]


def test_zeros_and_nans_as_keys() -> None:
    table = pa.table({"f": [0.0, -0.0, float("nan"), float("nan"), None], "v": [1, 2, 3, 4, 5]})
    rows = trireme.data.from_arrow(table)
    assert [row["sum(v)"] for row in rows.groupby("f").sum("v").take_all()] == [3, 7, 5]
    joined = rows.join(trireme.data.from_arrow(pa.table({"f": [0.0, float("nan"), None], "w": [1, 2, 3]})), on="f")
    assert [(row["v"], row["w"]) for row in joined.take_all()] == [(1, 1), (2, 1), (3, 2), (4, 2)]
    assert len(rows.unique("f")) == 3


def test_nans_of_different_bits_are_one_key() -> None:
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000007], np.uint64).view(np.float64)
    for values in (nans, nans.astype(np.float32)):
        rows = trireme.data.from_arrow(pa.table({"f": values, "v": [1, 2, 4]}))
        assert [row["sum(v)"] for row in rows.groupby("f").sum("v").take_all()] == [7]
        assert len(rows.unique("f")) == 1
        right = trireme.data.from_arrow(pa.table({"f": values[1:2], "w": [9]}))
        assert [row["v"] for row in rows.join(right, on="f").take_all()] == [1, 2, 4]
        counted = rows.aggregate(trireme.data.aggregate.CountDistinct("f"))
        assert list(counted.values()) == [1]


def test_sums_of_groups_are_exact() -> None:
    """Up to the last integer of 64 bits, where floats would say that the sum does not fit."""
    cases = {"int64": [2**62, 2**62 - 1, -1, 1], "uint64": [2**63, 2**63 - 1]}
    for kind, values in cases.items():
        table = pa.table({"k": [0] * len(values), "t": pa.array(values, kind)})
        rows = trireme.data.from_arrow(table).groupby("k")
        assert rows.sum("t").take_all() == [{"k": 0, "sum(t)": sum(values)}]
        assert rows.mean("t").take_all() == [{"k": 0, "mean(t)": sum(values) / len(values)}]
        assert rows.sum("t").schema().field("sum(t)").type == pa.type_for_alias(kind)
    cancelling = pa.table({"k": [0, 0, 0, 1], "t": [2**62, 1, -(2**62), None]})
    groups = trireme.data.from_arrow(cancelling).groupby("k")
    made = groups.aggregate(trireme.data.aggregate.Mean("t"), trireme.data.aggregate.Sum("t"))
    assert made.take_all() == [{"k": 0, "mean(t)": 1 / 3, "sum(t)": 1}, {"k": 1, "mean(t)": None, "sum(t)": None}]
    with pytest.raises(OverflowError, match=r"sum\(t\): 9223372036854775808 does not fit"):
        trireme.data.from_arrow(pa.table({"k": [0, 0], "t": [2**63 - 1, 1]})).groupby("k").sum("t").take_all()


def test_a_union_counts_columns_that_were_renamed(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [True, False, True], "b": [1, 2, 3]}), tmp_path / "a.parquet")
    renamed = trireme.data.read_parquet(tmp_path).filter("a").rename_columns({"a": "aa"})
    other = trireme.data.from_arrow(pa.table({"aa": [True], "b": [4]}))
    for rows in (renamed.union(other), other.union(renamed)):
        assert rows.count() == 3
        assert len(rows.limit(2).take_all()) == 2


def test_dictionaries_in_groups_and_joins() -> None:
    """Groups and pairs have them as values; rows that are only kept or dropped do not change."""
    coded = trireme.data.from_arrow(pa.table({"k": pa.array(["b", "a", None]).dictionary_encode(), "n": [5, 6, 7]}))
    other = trireme.data.from_arrow(pa.table({"k": ["a"]}))
    assert coded.groupby("k").count().schema().field("k").type == pa.string()
    assert coded.join(other, on="k").schema().field("k").type == pa.string()
    for how, expected in (("semi", [6]), ("anti", [5, 7])):
        kept = coded.join(other, how, on="k")
        assert kept.schema() == coded.schema()
        assert [row["n"] for row in kept.take_all()] == expected


def test_an_empty_dataset_has_no_batches() -> None:
    for empty in (trireme.data.range(0), trireme.data.range(5).filter("id > 9"), trireme.data.from_items([])):
        assert list(empty.iter_batches()) == []
        assert list(empty.iter_batches(batch_size=None)) == []
        assert list(empty.iter_rows()) == []
        assert list(empty.iterator().iter_batches()) == []


def test_a_sample_does_not_depend_on_fragments() -> None:
    samples = [trireme.data.range(1000, override_num_blocks=blocks).random_sample(0.3, seed=5) for blocks in (1, 7, 50)]
    ids = [[row["id"] for row in sample.take_all()] for sample in samples]
    assert ids[0] == ids[1] == ids[2]
    assert 200 < len(ids[0]) < 400
    kept = np.frombuffer(_core.sampled(5, 0, 1000, 0.3), bool)
    assert ids[0] == np.flatnonzero(kept).tolist()
    even = trireme.data.range(2000).filter("id % 2 == 0").random_sample(0.3, seed=5)
    assert [row["id"] // 2 for row in even.take_all()] == ids[0]
    assert sorted(row["id"] for row in samples[1].random_shuffle(seed=1).take_all()) == ids[0]


def test_integers_with_nulls_in_numpy_batches() -> None:
    rows = trireme.data.from_arrow(pa.table({"masked_n": [2**53 + 1, None, 3]}))
    with pytest.warns(UserWarning, match="column 'masked_n' is int64 and has nulls"):
        (batch,) = rows.iter_batches()
    assert batch["masked_n"].dtype == np.float64 and np.isnan(batch["masked_n"][1])
    (batch,) = rows.iter_batches(nullable="masked")
    assert batch["masked_n"].dtype == np.int64
    assert batch["masked_n"].tolist() == [2**53 + 1, None, 3]
    with pytest.raises(ValueError, match="nullable='both'"):
        rows.iter_batches(nullable="both")


@pytest.mark.parametrize("mapped", [False, True])
def test_functions_are_tried_only_on_rows_of_the_part(mapped: bool) -> None:
    rows = trireme.data.from_arrow(pa.table({"a": range(10)}))
    rows = rows.map(lambda row: row) if mapped else rows
    seen: list[int] = []

    def noted(row: dict[str, Any]) -> dict[str, Any]:
        seen.append(row["a"])
        return {"b": row["a"]}

    parts = {"limit": rows.limit(3), "split": rows.split(5)[1], "rest": rows.split_at_indices([7])[1]}
    tried = {}
    for name, part in parts.items():
        seen.clear()
        assert part.map(noted).schema().names == ["b"]
        tried[name] = sorted(seen)
    assert tried == {"limit": [0, 1, 2], "split": [2, 3], "rest": [7, 8, 9]}
