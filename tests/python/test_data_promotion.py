"""Types of later rows: promoted if nothing is lost, refused by name otherwise, never cast silently."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trireme.data
from runs import trireme_command
from trireme.data import DataError

_DAY = datetime.date(2020, 1, 1)
_ROWS = 3000  # more than a trial call sees
_LATE = 2500  # the first row of the last fragment
# The first rows have one value, the last another: what all rows become.
_PROMOTED: dict[str, tuple[Any, Any, pa.DataType]] = {
    "int, float": (1, 1.5, pa.float64()),
    "none, int": (None, 5, pa.int64()),
    "empty list, list": ([], [1], pa.list_(pa.int64())),
    "list of int, of float": ([1], [1.5], pa.list_(pa.float64())),
    "float32, float64": (np.float32(0.1), 0.1, pa.float64()),
    "later struct field": ({"a": 1}, {"a": 1, "b": 2}, pa.struct([("a", pa.int64()), ("b", pa.int64())])),
}
_REFUSED: dict[str, tuple[Any, Any, str]] = {
    "bool, int": (True, 5, "is int64 in row 2500 and bool in"),
    "date, datetime": (_DAY, datetime.datetime(2020, 1, 1, 5), r"is timestamp\[us\] in row 2500 and date32\[day\] in"),
    "text, int": ("s", 5, "is int64 in row 2500 and string in"),
    "text, bytes": ("s", b"s", "is binary in row 2500 and string in"),
}


def _late(first: Any, last: Any) -> trireme.data.Dataset:
    return trireme.data.range(_ROWS, override_num_blocks=6).map(
        lambda row: {"id": row["id"], "v": last if row["id"] >= _LATE else first}
    )


def _expected(first: Any, last: Any, kind: pa.DataType) -> list[Any]:
    return pa.array([first] * _LATE + [last] * (_ROWS - _LATE), kind).to_pylist()


@pytest.mark.parametrize("case", _PROMOTED)
def test_eager_results_have_one_promoted_type(tmp_path: Path, case: str) -> None:
    first, last, kind = _PROMOTED[case]
    rows = _late(first, last)
    expected = _expected(first, last, kind)
    for table in (rows.to_arrow(), rows.materialize().to_arrow(), rows.sort("id").to_arrow()):
        assert table.schema.field("v").type == kind
        assert table.column("v").to_pylist() == expected
    for name, options in (("one", {}), ("several", {"min_rows_per_file": 500}), ("parts", {"concurrency": 3})):
        rows.write_parquet(tmp_path / name, **options)
        files = sorted((tmp_path / name).iterdir())
        kinds = {str(pq.read_schema(file).field("v").type).replace("element", "item") for file in files}
        assert kinds == {str(kind)}
        assert pa.concat_tables(map(pq.read_table, files)).column("v").to_pylist() == expected


@pytest.mark.parametrize("case", _PROMOTED)
def test_batches_of_an_iterator_widen(case: str) -> None:
    first, last, kind = _PROMOTED[case]
    for rows in (_late(first, last), _late(first, last).random_shuffle(seed=1)):
        batches = list(rows.iterator().iter_batches(batch_size=100, batch_format="pyarrow"))
        ids = [value for batch in batches for value in batch.column("id").to_pylist()]
        assert sorted(ids) == list(range(_ROWS))
        values = [value for batch in batches for value in batch.column("v").cast(kind).to_pylist()]
        expected = _expected(first, last, kind)
        assert values == [expected[row] for row in ids]
        assert batches[-1].schema.field("v").type == kind or rows._plan.shuffle is not None


@pytest.mark.parametrize("case", _REFUSED)
def test_types_without_a_common_one_are_refused(case: str) -> None:
    first, last, message = _REFUSED[case]
    rows = _late(first, last)
    with pytest.raises(DataError, match=f"column 'v' {message}"):
        rows.to_arrow()
    with pytest.raises(DataError, match="column 'v' is"):
        list(rows.iterator().iter_batches())
    with pytest.raises(DataError, match=r"column 'v': row 1 is .* and row 0 is .*: all rows need one type|column 'v'"):
        trireme.data.from_items([{"v": first}, {"v": last}])  # in one batch


def test_integers_that_a_float_cannot_hold_are_refused() -> None:
    big = 2**53 + 1
    with pytest.raises(DataError, match=r"column 'v' is int64 in row 0, and double in the others"):
        _late(big, 1.5).to_arrow()
    with pytest.raises(DataError, match=rf"column 'v' is int64 in row {_LATE}, and double in the others"):
        _late(1.5, big).to_arrow()


def test_columns_that_a_map_does_not_change_keep_their_types(tmp_path: Path) -> None:
    schema = pa.schema([("s", pa.string()), ("n", pa.int32()), ("f", pa.float32()), ("d", pa.decimal128(10, 2))])
    nulls = pa.table({name: pa.nulls(3000, schema.field(name).type) for name in schema.names}, schema)
    value = pa.array([None, 1], pa.int32()).cast(pa.decimal128(12, 2)).cast(pa.decimal128(10, 2))
    values = pa.table([["x", None], [1, None], [0.5, None], value], schema=schema)
    pq.write_table(pa.concat_tables([nulls, values]), tmp_path / "a.parquet", row_group_size=1000)
    rows = trireme.data.read_parquet(tmp_path)
    for mapped in (rows.map(lambda row: row), rows.map(lambda row: {**row})):
        assert mapped.schema() == schema
        assert mapped.to_arrow() == rows.to_arrow()
        assert [row["s"] for row in mapped.iter_rows()][2999:] == [None, "x", None]
    batches = rows.map_batches(lambda batch: batch)
    assert batches.to_arrow().column("s").to_pylist()[-2:] == ["x", None]
    assert batches.to_arrow().column("n").to_pylist()[-2:] == [1, None]
    changed = rows.map(lambda row: {"length": None if row["s"] is None else len(row["s"])})
    assert changed.to_arrow().schema == pa.schema([("length", pa.int64())])


def test_batches_of_functions_are_promoted(tmp_path: Path) -> None:
    def halves(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"x": batch["id"] / 2 if batch["id"][0] >= 2000 else batch["id"]}

    rows = trireme.data.range(_ROWS, override_num_blocks=3).map_batches(halves, batch_size=1000)
    expected = [*range(2000), *(value / 2 for value in range(2000, 3000))]
    assert rows.to_arrow().column("x").to_pylist() == expected
    assert rows.sum("x") == sum(expected)
    assert [value for batch in rows.iter_batches(batch_size=700) for value in batch["x"]] == expected
    added = trireme.data.range(_ROWS, override_num_blocks=3).add_column(
        "y", lambda frame: frame["id"] * (1.5 if frame["id"].iloc[0] >= 2000 else 1)
    )
    assert added.to_arrow().column("y").type == pa.float64()
    with pytest.raises(pa.ArrowInvalid, match=r"materialize\(\) the dataset first"):
        pa.RecordBatchReader.from_stream(rows).read_all()


def test_workers_widen_without_losing_a_row(tmp_path: Path) -> None:
    """With function processes; `trireme data verify` checks the rows that every rank took."""

    def train(config: dict[str, Any]) -> None:
        shard = trireme.get_dataset_shard("train")
        for _ in range(2):
            ids: list[int] = []
            values: list[float] = []
            for batch in shard.iter_batches(batch_size=50):
                ids += batch["id"].tolist()
                values += batch["v"].tolist()
            assert values == [1.5 if row % 1000 == 999 else 1 for row in ids]
            trireme.report({"ids": len(ids), "total": sum(ids)})

    rows = trireme.data.range(_ROWS, override_num_blocks=6).map(
        lambda row: {"id": row["id"], "v": 1.5 if row["id"] % 1000 == 999 else 1}
    )
    result = trireme.DataParallelTrainer(
        train,
        datasets={"train": rows},
        dataset_config=trireme.DataConfig(log_samples=True),
        scaling_config=trireme.ScalingConfig(num_workers=2),
        run_config=trireme.RunConfig(name="widen", storage_path=str(tmp_path)),
    ).fit()
    assert result.metrics["ids"] == _ROWS // 2
    verified = trireme_command("data", "verify", str(result.path))
    assert verified.returncode == 0, verified.stdout
