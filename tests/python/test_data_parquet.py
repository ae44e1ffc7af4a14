from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.compute as pc  # noqa: E402
import pyarrow.dataset as ds  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

import trireme.data  # noqa: E402
from trireme.data import DataError, _parquet  # noqa: E402


def fragments_of(paths: Any, **options: Any) -> list[Any]:
    return list(trireme.data.read_parquet(paths, **options)._plan.source.fragments())


@pytest.fixture
def table() -> Any:
    rng = np.random.default_rng(1)
    rows = 1000
    return pa.table(
        {
            "i": np.arange(rows),
            "f": rng.random(rows, dtype=np.float32),
            "s": [None if row % 7 == 0 else f"text {row}" for row in range(rows)],
            "l": [list(range(row % 5)) for row in range(rows)],
            "d": pa.array([f"kind {row % 3}" for row in range(rows)]).dictionary_encode(),
            "t": pa.FixedShapeTensorArray.from_numpy_ndarray(rng.random((rows, 2, 3))),
            "st": [{"a": row, "b": str(row)} for row in range(rows)],
            "when": pa.array(range(rows), pa.timestamp("us", "UTC")),
            "b": [row % 2 == 0 for row in range(rows)],
        }
    )


# Row groups are read in two ways, by size: both must return the same rows.
@pytest.fixture(params=["scanned", "streamed"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(_parquet, "_SCANNED_BYTES", 1 << 40 if request.param == "scanned" else -1)
    return str(request.param)


def test_all_types_as_pyarrow_reads_them(table: Any, tmp_path: Path, way: str) -> None:
    for number in range(3):
        pq.write_table(table.slice(number * 333, 333), tmp_path / f"{number}.parquet", row_group_size=100)
    dataset = trireme.data.read_parquet(tmp_path)
    expected = pq.read_table(tmp_path)
    assert dataset.num_blocks() == 12
    assert dataset.schema() == expected.schema.remove_metadata()
    assert dataset.to_arrow().equals(expected.replace_schema_metadata(None))
    assert dataset.count() == 999
    chosen = trireme.data.read_parquet(tmp_path, columns=["s", "i"], include_paths=True)
    assert chosen.columns() == ["s", "i", "path"]
    assert chosen.to_arrow().select(["s", "i"]).equals(expected.select(["s", "i"]).replace_schema_metadata(None))


def test_partitions_columns_and_paths(table: Any, tmp_path: Path, way: str) -> None:
    with_year = table.select(["i", "f"]).append_column("year", pa.array([2020 + row % 2 for row in range(1000)]))
    pq.write_to_dataset(with_year, tmp_path / "d", partition_cols=["year"])
    expected = pq.read_table(
        tmp_path / "d", partitioning=ds.partitioning(pa.schema([("year", pa.int32())]), flavor="hive")
    )
    dataset = trireme.data.read_parquet(tmp_path / "d", include_paths=True)
    assert dataset.to_arrow().drop_columns("path").equals(expected.replace_schema_metadata(None))
    only = trireme.data.read_parquet(tmp_path / "d", columns=["year"]).to_arrow()
    assert only.column("year").to_pylist() == [2020] * 500 + [2021] * 500
    assert trireme.data.read_parquet(tmp_path / "d", partitioning=None).columns() == ["i", "f"]


def test_fragments_describe_their_content(table: Any, tmp_path: Path, way: str) -> None:
    pq.write_table(table.select(["i", "f"]), tmp_path / "a.parquet", row_group_size=400)
    fragments = fragments_of(tmp_path)
    assert [(f.name, f.rows, f.size_bytes) for f in fragments] == [
        ("a.parquet, row group 0", 400, 4800),
        ("a.parquet, row group 1", 400, 4800),
        ("a.parquet, row group 2", 200, 2400),
    ]
    assert {f.version for f in fragments} == {fragments[0].version} and fragments[0].version
    reader, first = fragments[2].open(columns=["f"], row=50)
    assert first == 0 and reader.read_all().equals(table.select(["f"]).slice(800))
    assert sum(batch.num_rows for batch in fragments[1].open(columns=[])[0]) == 400
    assert fragments[0].open(columns=["f", "i"])[0].schema.names == ["f", "i"]


def test_batches_are_small_where_rows_are_wide(tmp_path: Path, way: str) -> None:
    vectors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((40, 256 * 1024), np.float32))
    pq.write_table(pa.table({"v": vectors}), tmp_path / "a.parquet", compression="zstd")
    sizes = [batch.num_rows for batch in fragments_of(tmp_path)[0].open()[0]]
    assert sum(sizes) == 40 and max(sizes) == 16  # of 1 MB each


def test_filters_leave_row_groups_unread(tmp_path: Path) -> None:
    for year in (2020, 2021):
        (tmp_path / f"year={year}").mkdir()
        table = pa.table({"n": range(1000), "x": [float(row % 10) for row in range(1000)]})
        pq.write_table(table, tmp_path / f"year={year}" / "a.parquet", row_group_size=100)
    dates = trireme.data.read_parquet(tmp_path, filter=pc.field("year") == 2021)
    fragments = dates._plan.source.fragments()
    # The folder's name decides the filter, so the number of rows is known without reading.
    assert [f.rows for f in fragments] == [100] * 10
    assert all(f.name.startswith("year=2021/") for f in fragments)

    both = (pc.field("year") == 2021) & (pc.field("n") >= 850) & (pc.field("x") < 5)
    filtered = trireme.data.read_parquet(tmp_path, filter=both, columns=["n"])
    names = [f.name for f in filtered._plan.source.fragments()]
    assert names == ["year=2021/a.parquet, row group 8", "year=2021/a.parquet, row group 9"]
    expected = [row for row in range(850, 1000) if row % 10 < 5]
    assert filtered.to_arrow().to_pydict() == {"n": expected}
    assert filtered.count() == len(expected)
    assert trireme.data.read_parquet(tmp_path, filter=pc.field("n") > 5000).count() == 0

    with pytest.raises(DataError, match=r"filter = \(zz > 1\).*there are n, x, year"):
        trireme.data.read_parquet(tmp_path, filter=pc.field("zz") > 1)


def test_the_filter_of_a_dataset_reaches_the_files(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": range(1000)}), tmp_path / "a.parquet", row_group_size=100)
    source = trireme.data.read_parquet(tmp_path, include_paths=True)._plan.source
    pushed = source.with_filter(pc.field("n") >= 900)
    assert [f.name for f in pushed.fragments()] == ["a.parquet, row group 9"]
    assert source.with_filter(pc.field("path") == "x") is None  # our column, not in the file


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "b": [2]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="no column named 'c'; the columns are a, b"):
        trireme.data.read_parquet(tmp_path, columns=["a", "c"])
    with pytest.raises(trireme.ConfigError, match="columns = 'a': expected a list"):
        trireme.data.read_parquet(tmp_path, columns="a")


def test_files_that_disagree(tmp_path: Path, way: str) -> None:
    pq.write_table(pa.table({"n": [1], "s": ["x"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"s": ["y"], "n": [1.5]}), tmp_path / "b.parquet")
    message = r"column 'n' is double in .*b.parquet and int64 in .*a.parquet"
    with pytest.raises(DataError, match=message):
        trireme.data.read_parquet(tmp_path, strict=True).to_arrow()
    assert trireme.data.read_parquet(tmp_path).to_arrow().column("n").to_pylist() == [1.0, 1.5]
    pq.write_table(pa.table({"s": ["y"], "n": ["text"]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"column 'n' is string in .*b.parquet and int64 in .*a.parquet"):
        trireme.data.read_parquet(tmp_path).to_arrow()
    # Columns that are not read may differ, and so may the order of columns.
    assert trireme.data.read_parquet(tmp_path, columns=["s"]).to_arrow().to_pydict() == {"s": ["x", "y"]}
    pq.write_table(pa.table({"s": ["y"]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"column 'n' is missing in .*b.parquet and int64 in"):
        trireme.data.read_parquet(tmp_path, strict=True).to_arrow()
    schema = pa.schema([("n", pa.float64()), ("s", pa.string())])
    given = trireme.data.read_parquet(tmp_path, schema=schema).to_arrow()
    assert given.schema == schema and given.to_pydict() == {"n": [1.0, None], "s": ["x", "y"]}


def test_a_broken_page_is_named(tmp_path: Path, way: str) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": np.random.default_rng(0).random(100_000)}), path, compression="gzip")
    content = bytearray(path.read_bytes())
    content[5000:9000] = bytes(4000)
    path.write_bytes(content)
    # The reader adds the fragment's name to Arrow's own errors.
    with pytest.raises(DataError if way == "streamed" else OSError, match=r"a.parquet|GZip"):
        fragments_of(path)[0].open()[0].read_all()
    pq.write_table(pa.table({"n": [1.0]}), tmp_path / "b.parquet")
    with pytest.warns(UserWarning, match=r"1 of 2 files cannot be read and are skipped: .*a.parquet"):
        assert trireme.data.read_parquet(tmp_path, on_bad_file="skip").count() == 1


def test_empty_row_groups_and_files(tmp_path: Path) -> None:
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema([("n", pa.int64())])) as writer:
        for rows in ([1, 2], [], [3]):
            writer.write_table(pa.table({"n": pa.array(rows, pa.int64())}))
    pq.write_table(pa.table({"n": pa.array([], pa.int64())}), tmp_path / "b.parquet")
    assert trireme.data.read_parquet(tmp_path).to_arrow().to_pydict() == {"n": [1, 2, 3]}
    assert trireme.data.read_parquet(tmp_path / "b.parquet").count() == 0


def test_a_large_row_group_is_not_held_in_memory(tmp_path: Path, script: Any) -> None:
    rng = np.random.default_rng(0)
    columns = {f"c{number}": rng.random(2_000_000, dtype=np.float32) for number in range(10)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=2_000_000)
    run = script.run(
        f"""
        import pyarrow as pa
        import trireme.data
        fragment = trireme.data.read_parquet({str(tmp_path)!r})._plan.source.fragments()[0]
        assert fragment.rows == 2_000_000
        for batch in fragment.open()[0]:
            pass
        print(pa.default_memory_pool().max_memory())
        """
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 80_000_000 / 2  # of 80 MB
