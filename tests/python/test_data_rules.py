"""The rules of docs/data.md for NaN, null, overflow and promotion, against numpy, pandas and pyarrow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import trireme.data
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
