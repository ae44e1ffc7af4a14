"""Readers and writers over other libraries. What is written is read back equal, in both directions with an independent
reader. Packages that are not installed are skipped (`pip install "trireme[test-data]"` installs them)."""

from __future__ import annotations

import datetime
import decimal
import json
import sqlite3
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.orc as orc
import pytest
from PIL import Image

import trireme
import trireme.data
from trireme.data import DataError


def _table(rows: int = 100) -> pa.Table:
    n = np.arange(rows)
    return pa.table(
        {
            "n": n,
            "x": pa.array(n / 7, mask=n % 5 == 0),
            "s": [None if i % 7 == 0 else f"row {i}" for i in range(rows)],
            "l": [list(range(i % 3)) for i in range(rows)],
        }
    )


def test_orc_files(tmp_path: Path) -> None:
    table = _table(30_000)
    (tmp_path / "year=2024").mkdir()
    orc.write_table(table, tmp_path / "year=2024" / "a.orc", stripe_size=65_536)
    orc.write_table(table.slice(0, 10), tmp_path / "year=2024" / "b.orc")
    dataset = trireme.data.read_orc(str(tmp_path))
    assert dataset.num_blocks() > 2
    assert dataset.count() == 30_010
    rows = dataset.to_arrow()
    assert rows.select(table.column_names).equals(pa.concat_tables([table, table.slice(0, 10)]))
    assert rows["year"].to_pylist() == [2024] * 30_010
    assert trireme.data.read_orc(str(tmp_path), columns=["s", "n"]).take(1) == [{"s": None, "n": 0}]
    assert dataset.split_at_indices([29_998])[1].to_pandas()["n"].tolist() == [29_998, 29_999, *range(10)]
    (tmp_path / "bad.orc").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"bad.orc is not a readable ORC file"):
        trireme.data.read_orc(str(tmp_path / "bad.orc")).take(1)


def test_avro_files(tmp_path: Path) -> None:
    fastavro = pytest.importorskip("fastavro")
    schema = {
        "type": "record",
        "name": "Row",
        "fields": [
            {"name": "n", "type": "long"},
            {"name": "s", "type": ["null", "string"]},
            {"name": "f", "type": "float"},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "at", "type": {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "double"}]}},
            {"name": "from", "type": ["null", "Point"]},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "time", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        ],
    }
    rows = [
        {
            "n": i,
            "s": None if i < 1500 else str(i),
            "f": i / 4,
            "tags": ["a"] * (i % 3),
            "at": {"x": i / 2},
            "from": None if i % 2 else {"x": 1.0},
            "kind": "AB"[i % 2],
            "day": datetime.date(2024, 1, 1 + i % 28),
            "time": datetime.datetime(2024, 1, 1, microsecond=i, tzinfo=datetime.UTC),
            "price": decimal.Decimal(i) / 100,
        }
        for i in range(2500)
    ]
    for part in (0, 1):
        with open(tmp_path / f"{part}.avro", "wb") as file:
            fastavro.writer(file, fastavro.parse_schema(schema), rows[part::2], codec="deflate")
    dataset = trireme.data.read_avro(str(tmp_path))
    assert dataset.take_all() == [*rows[0::2], *rows[1::2]]
    assert dataset.schema().field("price").type == pa.decimal128(9, 2)
    assert dataset.schema().field("s").type == pa.string()
    assert dataset.count() == 2500
    (tmp_path / "bad.avro").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"bad.avro is not a readable Avro file"):
        trireme.data.read_avro(str(tmp_path / "bad.avro")).take(1)
    both = {**schema, "fields": [{"name": "u", "type": ["int", "string"]}]}
    with open(tmp_path / "union.avro", "wb") as file:
        fastavro.writer(file, fastavro.parse_schema(both), [{"u": 1}])
    with pytest.raises(DataError, match=r"union.avro, u: a union of"):
        trireme.data.read_avro(str(tmp_path / "union.avro")).take(1)


def test_audio_files(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    rng = np.random.default_rng(0)
    sounds = [rng.uniform(-1, 1, (2, 800)).astype(np.float32), rng.uniform(-1, 1, (1, 500)).astype(np.float32)]
    soundfile.write(tmp_path / "a.wav", sounds[0].T, 16_000, subtype="FLOAT")
    soundfile.write(tmp_path / "b.wav", sounds[1].T, 8_000, subtype="FLOAT")
    rows = trireme.data.read_audio(str(tmp_path), include_paths=True).take_all()
    assert [row["sample_rate"] for row in rows] == [16_000, 8_000]
    for row, sound in zip(rows, sounds, strict=True):
        np.testing.assert_array_equal(row["amplitude"], sound)
    assert rows[1]["path"].endswith("b.wav")
    (tmp_path / "c.wav").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"c.wav is not a readable audio file"):
        trireme.data.read_audio(str(tmp_path)).take_all()


def test_video_files(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    frames = [np.full((48, 64, 3), 10 * i, np.uint8) for i in range(12)]
    with av.open(str(tmp_path / "a.mkv"), "w") as video:
        stream = video.add_stream("ffv1", rate=4)  # lossless
        stream.width, stream.height, stream.pix_fmt = 64, 48, "bgr0"
        for frame in frames:
            video.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        video.mux(stream.encode())
    dataset = trireme.data.read_videos(str(tmp_path), include_timestamps=True)
    rows = dataset.take_all()
    assert [row["frame_index"] for row in rows] == list(range(12))
    np.testing.assert_allclose([row["frame_timestamp"] for row in rows], np.arange(12) / 4, atol=0.01)
    for row, frame in zip(rows, frames, strict=True):
        np.testing.assert_array_equal(row["frame"], frame)
    assert dataset.split_at_indices([5])[1].take(1)[0]["frame"][0, 0, 0] == 50
    (tmp_path / "b.mp4").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"b.mp4 is not a readable video file"):
        trireme.data.read_videos(str(tmp_path / "b.mp4")).take(1)


def test_delta_tables(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = _table()
    trireme.data.from_arrow(table, override_num_blocks=3).write_delta(str(tmp_path / "written"))
    found = deltalake.DeltaTable(tmp_path / "written").to_pyarrow_table().sort_by("n")
    assert found.cast(table.schema).equals(table)
    trireme.data.from_arrow(table.slice(0, 5)).write_delta(str(tmp_path / "written"), mode="append")
    assert deltalake.DeltaTable(tmp_path / "written").version() == 1
    deltalake.write_deltalake(tmp_path / "theirs", table, partition_by=["s"])
    deltalake.write_deltalake(tmp_path / "theirs", table.slice(0, 10), mode="append")
    dataset = trireme.data.read_delta(str(tmp_path / "theirs"))
    assert dataset.count() == 110
    rows = dataset.to_arrow().select(table.column_names).sort_by("n").cast(table.schema)
    both = pa.concat_tables([table, table.slice(0, 10)]).sort_by("n")
    assert rows.equals(both)
    assert trireme.data.read_delta(str(tmp_path / "theirs"), version=0, columns=["n"]).count() == 100
    with pytest.raises(DataError, match=r"read_delta: .*missing"):
        trireme.data.read_delta(str(tmp_path / "missing"))
    with pytest.raises(trireme.ConfigError, match="write_delta: mode = 'replace'"):
        dataset.write_delta(str(tmp_path / "written"), mode="replace")


def test_a_run_reads_a_delta_table(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    for part in range(4):
        deltalake.write_deltalake(tmp_path / "t", pa.table({"n": np.arange(part * 10, part * 10 + 10)}), mode="append")

    def train(config: dict[str, Any]) -> list[int]:
        batches = trireme.get_dataset_shard("train").iter_batches(batch_size=5)
        return [int(n) for batch in batches for n in batch["n"]]

    result = trireme.DataParallelTrainer(
        train,
        scaling_config=trireme.ScalingConfig(num_workers=2),
        run_config=trireme.RunConfig(name="run", storage_path=str(tmp_path / "runs")),
        datasets={"train": trireme.data.read_delta(str(tmp_path / "t"))},
    ).fit()
    assert len(result.return_value) == 20
    assert set(result.return_value) < set(range(40))


def test_iceberg_tables(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    pytest.importorskip("sqlalchemy")
    from pyiceberg.catalog import load_catalog

    settings = {
        "name": "local",
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    catalog = load_catalog(**settings)
    catalog.create_namespace("space")
    table = _table()
    theirs = catalog.create_table("space.rows", schema=table.schema)
    theirs.append(table.slice(0, 60))
    first = theirs.current_snapshot().snapshot_id
    theirs.append(table.slice(60))
    dataset = trireme.data.read_iceberg(table_identifier="space.rows", catalog_kwargs=settings)
    assert dataset.count() == 100
    assert dataset.to_arrow().sort_by("n").cast(table.schema).equals(table)
    options: dict[str, Any] = {"table_identifier": "space.rows", "catalog_kwargs": settings}
    assert trireme.data.read_iceberg(**options, snapshot_id=first).count() == 60
    some = trireme.data.read_iceberg(**options, row_filter="n >= 90", selected_fields=("n", "s"))
    assert some.schema().names == ["n", "s"]
    assert sorted(row["n"] for row in some.take_all()) == list(range(90, 100))
    trireme.data.from_arrow(table.slice(0, 5)).write_iceberg("space.rows", settings, mode="overwrite")
    assert catalog.load_table("space.rows").scan().to_arrow().cast(table.schema).equals(table.slice(0, 5))
    trireme.data.from_arrow(table.slice(5, 5)).write_iceberg("space.rows", settings, {"by": "test"})
    written = catalog.load_table("space.rows")
    assert written.scan().to_arrow().sort_by("n").cast(table.schema).equals(table.slice(0, 10))
    assert written.current_snapshot().summary["by"] == "test"
    with pytest.raises(DataError, match=r"table_identifier='space.none'"):
        trireme.data.read_iceberg(table_identifier="space.none", catalog_kwargs=settings)


def test_lance_datasets(tmp_path: Path) -> None:
    lance = pytest.importorskip("lance")
    table = _table()
    lance.write_dataset(table, tmp_path / "theirs.lance", max_rows_per_file=40)
    dataset = trireme.data.read_lance(str(tmp_path / "theirs.lance"))
    assert dataset.num_blocks() == 3
    assert dataset.to_arrow().equals(table)
    some = trireme.data.read_lance(str(tmp_path / "theirs.lance"), columns=["n"], filter="n > 97")
    assert some.take_all() == [{"n": 98}, {"n": 99}]
    dataset.write_lance(str(tmp_path / "ours.lance"))
    assert lance.dataset(tmp_path / "ours.lance").to_table().equals(table)
    dataset.write_lance(str(tmp_path / "ours.lance"), mode="append")
    assert lance.dataset(tmp_path / "ours.lance").count_rows() == 200
    with pytest.raises(DataError, match=r"read_lance: .*missing"):
        trireme.data.read_lance(str(tmp_path / "missing"))


def _frame() -> pd.DataFrame:
    return pd.DataFrame({"n": np.arange(20), "s": [f"row {i}" for i in range(20)]})


def test_dask_dataframes() -> None:
    dask = pytest.importorskip("dask.dataframe")
    dataset = trireme.data.from_dask(dask.from_pandas(_frame(), npartitions=3))
    assert dataset.take_all() == _frame().to_dict("records")
    assert dataset.to_dask().compute().reset_index(drop=True).to_dict("records") == _frame().to_dict("records")
    with pytest.raises(trireme.ConfigError, match=r"expected a dask.dataframe.DataFrame, got builtins.int"):
        trireme.data.from_dask(3)


@pytest.mark.slow
def test_spark_dataframes() -> None:
    sql = pytest.importorskip("pyspark.sql")
    spark = sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        dataset = trireme.data.from_spark(spark.createDataFrame(_frame()))
        assert sorted(dataset.take_all(), key=lambda row: row["n"]) == _frame().to_dict("records")
        assert dataset.to_spark(spark).toPandas().to_dict("records") == dataset.take_all()
    finally:
        gateway = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # Spark's process ends at the end of its input
        gateway.proc.wait()
        type(spark.sparkContext)._gateway = type(spark.sparkContext)._jvm = None


def test_modin_dataframes() -> None:
    modin = pytest.importorskip("modin.pandas")
    dataset = trireme.data.from_modin(modin.DataFrame(_frame()))
    assert dataset.take_all() == _frame().to_dict("records")
    assert dataset.to_modin().to_dict("records") == _frame().to_dict("records")


def test_daft_dataframes() -> None:
    daft = pytest.importorskip("daft")
    dataset = trireme.data.from_daft(daft.from_pydict(_frame().to_dict("list")))
    assert dataset.take_all() == _frame().to_dict("records")
    assert dataset.to_daft().to_pydict() == _frame().to_dict("list")


def test_an_absent_package_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in ("deltalake", "fastavro", "soundfile", "av", "lance", "dask", "pyspark", "modin", "daft"):
        monkeypatch.setitem(sys.modules, module, None)
    for module in ("pyiceberg", "pyiceberg.catalog"):
        monkeypatch.setitem(sys.modules, module, None)
    dataset = trireme.data.range(3)
    calls: list[tuple[str, Any]] = [
        ("delta", lambda: trireme.data.read_delta("t")),
        ("delta", lambda: dataset.write_delta("t")),
        ("iceberg", lambda: trireme.data.read_iceberg(table_identifier="t")),
        ("iceberg", lambda: dataset.write_iceberg("t")),
        ("lance", lambda: trireme.data.read_lance("t")),
        ("lance", lambda: dataset.write_lance("t")),
        ("avro", lambda: trireme.data.read_avro("t")),
        ("audio", lambda: trireme.data.read_audio("t")),
        ("video", lambda: trireme.data.read_videos("t")),
        ("dask", lambda: trireme.data.from_dask(None)),
        ("spark", lambda: trireme.data.from_spark(None)),
        ("modin", lambda: trireme.data.from_modin(None)),
        ("daft", lambda: dataset.to_daft()),
    ]
    for extra, call in calls:
        with pytest.raises(ImportError, match=rf'pip install "trireme\[{extra}\]"'):
            call()


def test_images_are_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 8, 6, 3), dtype=np.uint8)
    dataset = trireme.data.from_numpy(images).rename_columns({"data": "image"})
    dataset.write_images(str(tmp_path / "png"), "image")
    files = sorted((tmp_path / "png").iterdir())
    assert [file.suffix for file in files] == [".png"] * 5
    for file, image in zip(files, images, strict=True):
        np.testing.assert_array_equal(np.asarray(Image.open(file)), image)
    back = trireme.data.read_images(str(tmp_path / "png")).take_all()
    np.testing.assert_array_equal(np.stack([row["image"] for row in back]), images)
    grey = trireme.data.from_numpy(images[..., :1]).rename_columns({"data": "image"})
    grey.write_images(str(tmp_path / "grey"), "image", "bmp")
    np.testing.assert_array_equal(np.asarray(Image.open(sorted((tmp_path / "grey").iterdir())[0])), images[0, ..., 0])
    with pytest.raises(trireme.ConfigError, match="file_format = 'xyz'"):
        dataset.write_images(str(tmp_path / "xyz"), "image", "xyz")
    with pytest.raises(ValueError, match="write_images: column 'id'"):
        trireme.data.range(3).write_images(str(tmp_path / "ids"), "id")


@pytest.mark.slow
def test_tfrecord_files_are_written(tmp_path: Path) -> None:
    tensorflow = pytest.importorskip("tensorflow")
    table = pa.table(
        {
            "n": pa.array([0, -1, 2**62, -(2**63), None]),
            "x": pa.array([0.5, -1.25, float("inf"), 3.0, None], pa.float32()),
            "s": ["a", "", "ä", "long " * 100, None],
            "b": pa.array([b"\x00\xff", b"", b"x", b"y", b"z"]),
            "l": [[1, 2], [], [300], [4, 5, 6], [7]],
        }
    )
    trireme.data.from_arrow(table).write_tfrecords(str(tmp_path), num_rows_per_file=3)
    files = sorted(str(path) for path in tmp_path.iterdir())
    assert len(files) == 2
    read = []
    for record in tensorflow.data.TFRecordDataset(files).as_numpy_iterator():
        features = tensorflow.train.Example.FromString(record).features.feature
        kinds = {name: feature.WhichOneof("kind") for name, feature in features.items()}
        read.append({name: list(getattr(features[name], kind).value) for name, kind in kinds.items() if kind})
    for row, expected in zip(read, table.to_pylist(), strict=True):
        for name, value in expected.items():
            if value is None:
                assert name not in row
                continue
            wanted = value if isinstance(value, list) else [value.encode() if isinstance(value, str) else value]
            assert row.get(name, []) == wanted, name
    back = trireme.data.read_tfrecords(files, schema=table.schema).to_arrow()
    assert back.to_pylist() == table.to_pylist()
    with pytest.raises(ValueError, match="write_tfrecords: column 'd' has values of type date32"):
        trireme.data.from_arrow(pa.table({"d": [datetime.date(2024, 1, 1)]})).write_tfrecords(str(tmp_path / "d"))


def test_tensors_become_flat_features(tmp_path: Path) -> None:
    images = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    trireme.data.from_numpy(images).write_tfrecords(str(tmp_path))
    back = trireme.data.read_tfrecords(str(tmp_path)).take_all()
    assert [list(row["data"]) for row in back] == images.reshape(4, 6).tolist()


def test_webdataset_files_are_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    samples = [
        {
            "__key__": f"sample{i}",
            "png": rng.integers(0, 256, (4, 4, 3), dtype=np.uint8),
            "cls": i,
            "txt": f"text {i}",
            "json": {"i": i},
            "npy": np.arange(i + 1, dtype=np.float32),
        }
        for i in range(7)
    ]
    dataset = trireme.data.from_items(samples)
    dataset.write_webdataset(str(tmp_path / "tars"), num_rows_per_file=4)
    files = sorted((tmp_path / "tars").iterdir())
    assert len(files) == 2
    with tarfile.open(files[1]) as tar:
        assert tar.getnames()[:2] == ["sample4.png", "sample4.cls"]
        member = tar.extractfile("sample5.json")
        assert member is not None and json.loads(member.read()) == {"i": 5}
    back = trireme.data.read_webdataset(str(tmp_path / "tars")).take_all()
    for row, sample in zip(back, samples, strict=True):
        np.testing.assert_array_equal(row["png"], sample["png"])
        np.testing.assert_array_equal(row["npy"], sample["npy"])
        assert {key: row[key] for key in ("__key__", "cls", "txt", "json")} == {
            key: sample[key] for key in ("__key__", "cls", "txt", "json")
        }
    trireme.data.from_items([{"a": b"1"}, {"a": b"2"}]).write_webdataset(str(tmp_path / "raw"), encoder=None)
    with tarfile.open(next((tmp_path / "raw").iterdir())) as tar:
        assert tar.getnames() == ["000000000.a", "000000001.a"]
    with pytest.raises(ValueError, match=r"sample '000000000': \.id is int, expected bytes"):
        trireme.data.range(2).write_webdataset(str(tmp_path / "ints"), encoder=None)
    with pytest.raises(trireme.ConfigError, match="encoder = 'zip'"):
        dataset.write_webdataset(str(tmp_path / "x"), encoder="zip")


def test_sql_tables_are_written(tmp_path: Path) -> None:
    file = tmp_path / "rows.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE rows (n INTEGER PRIMARY KEY, s TEXT)")
    table = _table(3000).select(["n", "s"])
    trireme.data.from_arrow(table).write_sql("INSERT INTO rows VALUES (?, ?)", lambda: sqlite3.connect(file))
    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT n, s FROM rows ORDER BY n").fetchall() == [
            (row["n"], row["s"]) for row in table.to_pylist()
        ]
    assert (
        trireme.data.read_sql("SELECT * FROM rows ORDER BY n", lambda: sqlite3.connect(file)).to_arrow().equals(table)
    )
    more = trireme.data.from_arrow(pa.table({"n": [5000, 1], "s": ["new", "duplicate"]}))
    with pytest.raises(sqlite3.IntegrityError):
        more.write_sql("INSERT INTO rows VALUES (?, ?)", lambda: sqlite3.connect(file))
    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT COUNT(*) FROM rows").fetchone() == (3000,)  # all rows or none
    with pytest.raises(trireme.ConfigError, match="connection_factory = 3"):
        more.write_sql("INSERT", 3)
