"""The arguments that all write_* methods share."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import trireme.data
from trireme.data import FilenameProvider

_METHODS = ("write_parquet", "write_csv", "write_json", "write_numpy")


def _write(dataset: trireme.data.Dataset, method: str, folder: Path, **options: Any) -> list[Path]:
    if method == "write_numpy":
        options["column"] = "id"
    getattr(dataset, method)(folder, **options)
    return sorted(folder.rglob("*.*"))


def _ids(file: Path) -> list[int]:
    if file.suffix == ".npy":
        return list(np.load(file))
    readers = {".parquet": "read_parquet", ".csv": "read_csv", ".json": "read_json"}
    return [row["id"] for row in getattr(trireme.data, readers[file.suffix])(str(file)).take_all()]


@pytest.mark.parametrize("method", _METHODS)
def test_files_have_exactly_the_requested_rows(tmp_path: Path, method: str) -> None:
    files = _write(trireme.data.range(100, override_num_blocks=7), method, tmp_path, num_rows_per_file=30)
    assert [_ids(file) for file in files] == [[*range(low, min(low + 30, 100))] for low in (0, 30, 60, 90)]


@pytest.mark.parametrize("method", _METHODS)
def test_several_files_are_written_at_the_same_time(tmp_path: Path, method: str) -> None:
    together = threading.Barrier(3, timeout=60)

    class Names(FilenameProvider):
        def get_filename_for_block(self, block: pa.Table, write_uuid: str, task_index: int, block_index: int) -> str:
            together.wait()  # passes only if all three parts are being written
            return f"part-{task_index}-{block_index}.{method.removeprefix('write_').replace('numpy', 'npy')}"

    dataset = trireme.data.range(90, override_num_blocks=9)
    files = _write(dataset, method, tmp_path, concurrency=3, filename_provider=Names())
    assert [file.stem for file in files] == ["part-0-0", "part-1-0", "part-2-0"]
    assert [row for file in files for row in _ids(file)] == list(range(90))


def test_concurrent_files_keep_the_order_of_the_rows(tmp_path: Path) -> None:
    trireme.data.range(1000, override_num_blocks=10).random_shuffle(seed=3).write_parquet(
        tmp_path / "shuffled", concurrency=4
    )
    found = trireme.data.read_parquet(tmp_path / "shuffled").to_arrow().column("id").to_pylist()
    expected = trireme.data.range(1000, override_num_blocks=10).random_shuffle(seed=3).to_arrow().column("id")
    assert found == expected.to_pylist() != list(range(1000))
    trireme.data.range(0).write_parquet(tmp_path / "none", concurrency=4)
    assert trireme.data.read_parquet(tmp_path / "none").count() == 0


@pytest.mark.parametrize("method", _METHODS)
def test_unknown_options_are_named(tmp_path: Path, method: str) -> None:
    with pytest.raises(TypeError, match=rf"{method}\(\) has no argument 'compresion'"):
        _write(trireme.data.range(3), method, tmp_path / "out", compresion="gzip")
    assert not (tmp_path / "out").exists()
    for option in ("min_rows_per_file", "num_rows_per_file", "concurrency"):
        with pytest.raises(ValueError, match=rf"{method}\({option}=0\)"):
            _write(trireme.data.range(3), method, tmp_path / "out", **{option: 0})


def test_partitions_take_row_groups_and_files_of_a_size(tmp_path: Path) -> None:
    table = pa.table({"id": np.arange(12), "p": np.arange(12) % 2})
    trireme.data.from_arrow(table).write_parquet(
        tmp_path, partition_cols=["p"], row_group_size=2, num_rows_per_file=4, compression="gzip"
    )
    files = sorted(tmp_path.rglob("*.parquet"))
    assert [pq.ParquetFile(file).metadata.num_rows for file in files] == [4, 2, 4, 2]
    assert {pq.ParquetFile(file).metadata.row_group(0).num_rows for file in files} == {2}
    with pytest.raises(ValueError, match="partition_cols excludes min_rows_per_file"):
        trireme.data.from_arrow(table).write_parquet(tmp_path, partition_cols=["p"], min_rows_per_file=3)


@pytest.mark.parametrize("values", [["a", None, "", "NULL", None, None], [None, 1, None], [None, 0.5]], ids=str)
def test_nulls_in_the_only_column_survive_csv(tmp_path: Path, values: list[Any]) -> None:
    trireme.data.from_arrow(pa.table({"x": values})).write_csv(tmp_path)
    assert [row["x"] for row in trireme.data.read_csv(tmp_path).take_all()] == values


def test_null_and_empty_text_survive_csv(tmp_path: Path) -> None:
    rows = [{"s": "a", "n": 1}, {"s": None, "n": None}, {"s": "", "n": 3}, {"s": "NA", "n": 4}, {"s": "null", "n": 5}]
    trireme.data.from_items(rows).write_csv(tmp_path / "ours")
    assert trireme.data.read_csv(tmp_path / "ours").take_all() == rows


def test_quoted_nulls_of_numbers_are_still_null(tmp_path: Path) -> None:
    """Other programs quote everything."""
    (tmp_path / "q.csv").write_text('"s","n"\n"a","1"\n"",""\n')
    assert trireme.data.read_csv(tmp_path / "q.csv").take_all() == [{"s": "a", "n": 1}, {"s": "", "n": None}]
    plain = trireme.data.read_csv(tmp_path / "q.csv", convert_options=pyarrow.csv.ConvertOptions())
    assert plain.take_all() == [{"s": "a", "n": 1}, {"s": "", "n": None}]
