"""File formats that Arrow does not read, in C++: the rows must equal those that Python reads."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import sqlite3
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpp_programs import BUILD, checked, run
from s3_server import Bucket
from test_data_whole_files import claimed
from tfrecord_files import example, framed

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

import trireme.data  # noqa: E402
from trireme.data._tensors import numpy_of  # noqa: E402

PROGRAM = BUILD / "tests/data_sources_program"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built: trireme::data was not built")

Read = Callable[..., Any]


@pytest.fixture
def read(tmp_path_factory: pytest.TempPathFactory) -> Read:
    """read(reader, "option=value", ...): the program's rows, as a table."""
    numbers = itertools.count()
    folder = tmp_path_factory.mktemp("read")

    def table(reader: str, *options: object) -> Any:
        out = folder / str(next(numbers))
        said = checked(PROGRAM, reader, f"out={out}", *options)
        result = pq.read_table(out)
        assert int(said.split()[0]) == result.num_rows
        return result.replace_schema_metadata({b"fragments": said.split()[1].encode()})

    return table


def assert_same(got: Any, dataset: Any, within: int = 0) -> None:
    """The same columns, rows and fragments. The numbers of bytes may differ by this much."""
    expected = dataset.to_arrow()
    assert got.column_names == expected.column_names
    assert got.num_rows == expected.num_rows
    assert int(got.schema.metadata[b"fragments"]) == len(list(dataset._plan.source.fragments()))
    for name in expected.column_names:
        for row, (ours, theirs) in enumerate(
            zip(numpy_of(got.column(name), name), numpy_of(expected.column(name), name), strict=True)
        ):
            if isinstance(theirs, np.ndarray) and within:
                assert ours.shape == theirs.shape
                assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= within, (name, row)
            elif isinstance(theirs, np.ndarray):
                assert ours.dtype == theirs.dtype
                np.testing.assert_array_equal(ours, theirs)
            else:
                assert ours == theirs, (name, row)


def refused(reader: str, *options: object) -> str:
    done = run(PROGRAM, reader, *options)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def picture(height: int, width: int, seed: int = 0, mode: str = "RGB") -> Any:
    image = pytest.importorskip("PIL.Image")
    noise = np.random.default_rng(seed).integers(0, 255, (height, width, 4), np.uint8)
    return image.fromarray(noise, "RGBA").convert(mode)


def test_images_of_one_shape(tmp_path: Path, read: Read) -> None:
    for number in range(70):
        picture(8, 6, number).save(tmp_path / f"{number:02d}.{'png' if number % 2 else 'jpg'}")
    (tmp_path / "labels.csv").write_text("not an image")
    dataset = trireme.data.read_images(tmp_path, include_paths=True)
    assert_same(read("read_images", f"path={tmp_path}", "include_paths=1"), dataset)
    # The order of a shuffle depends on the fragments: they are the same in both languages.
    shuffled = read("read_images", f"path={tmp_path}", "include_paths=1", "seed=3")
    expected = [row["path"] for row in dataset.random_shuffle(seed=3).iter_rows()]
    assert shuffled.column("path").to_pylist() == expected
    assert checked(PROGRAM, "read_images", f"path={tmp_path}", "show=1") == "image=U8 8 6 3;\n" * 70


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "LA"])
def test_images_are_resized_and_converted(tmp_path: Path, read: Read, mode: str) -> None:
    image = pytest.importorskip("PIL.Image")
    picture(40, 30, 1).save(tmp_path / "a.png")
    picture(20, 50, 2, "L").save(tmp_path / "b.png")
    picture(10, 10, 3, "RGBA").save(tmp_path / "c.png")
    picture(33, 12, 4, "P").save(tmp_path / "d.png")
    picture(9, 70, 5, "LA").save(tmp_path / "e.png")
    picture(64, 48, 6, "CMYK").save(tmp_path / "f.jpg")
    picture(21, 22, 7, "1").save(tmp_path / "g.png")
    # A large image is decoded at reduced size.
    picture(8, 8, 5).resize((800, 600), image.Resampling.BICUBIC).save(tmp_path / "h.jpg", quality=95)
    picture(16, 17, 8).save(tmp_path / "i.bmp")
    dataset = trireme.data.read_images(tmp_path, size=(12, 16), mode=mode)
    got = read("read_images", f"path={tmp_path}", "size=12,16", f"mode={mode}")
    # Pillow rounds between the two directions, in its own order; this matters more for nearly transparent pixels.
    assert_same(got, dataset, within=8 if mode.endswith("A") else 1)


def test_images_as_they_are(tmp_path: Path, read: Read) -> None:
    image = pytest.importorskip("PIL.Image")
    for number, mode in enumerate(("RGB", "L", "RGBA", "P", "LA", "RGB", "L")):
        picture(8 + number, 6, number, mode).save(tmp_path / f"{number}.png")
    picture(9, 30, 9, "CMYK").save(tmp_path / "x.jpg")
    picture(13, 5, 9, "L").save(tmp_path / "y.jpg")
    dataset = trireme.data.read_images(tmp_path)
    assert_same(read("read_images", f"path={tmp_path}"), dataset)
    shown = checked(PROGRAM, "read_images", f"path={tmp_path / '0.png'}", f"path={tmp_path / '1.png'}", "show=1")
    assert shown == "image=U8 8 6 3;\nimage=U8 9 6;\n"

    deep = tmp_path / "deep"
    deep.mkdir()
    for number in range(2):
        values = np.random.default_rng(number).integers(0, 65535, (6, 7), np.uint16)
        image.fromarray(values).save(deep / f"{number}.png")
    assert_same(read("read_images", f"path={deep}"), trireme.data.read_images(deep))
    bits = tmp_path / "bits"
    bits.mkdir()
    picture(6, 9, 1, "1").save(bits / "a.png")
    assert_same(read("read_images", f"path={bits}"), trireme.data.read_images(bits))


def test_images_that_cannot_be_read(tmp_path: Path, read: Read) -> None:
    for number in range(6):
        picture(100, 100, number).save(tmp_path / f"{number}.{'jpg' if number == 5 else 'png'}")
    for name in ("1.png", "5.jpg"):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2])
    assert f"{tmp_path}/1.png is not a readable image: it is truncated" in refused(
        "read_images", f"path={tmp_path}", "show=1"
    )
    (tmp_path / "0.png").write_text("no image")
    assert f"{tmp_path}/0.png is not a readable image" in refused("read_images", f"path={tmp_path}")
    done = run(PROGRAM, "read_images", f"path={tmp_path}", "skip_bad_files=1", "include_paths=1", "show=1")
    assert [line.split("path=")[1] for line in done.stdout.splitlines()] == [
        f"{tmp_path}/{number}.png;" for number in (2, 3, 4)
    ]
    assert f"3 of 6 files cannot be read and are skipped: {tmp_path}/0.png, {tmp_path}/1.png and 1 more" in done.stderr
    assert "mode = 'XYZ': expected one of L, LA, RGB, RGBA" in refused("read_images", f"path={tmp_path}", "mode=XYZ")
    assert "size = {0, 3}: expected {height, width}" in refused("read_images", f"path={tmp_path}", "size=0,3")
    (tmp_path / "empty").mkdir()
    assert "no files ending in .png or .jpg" in refused("read_images", f"path={tmp_path / 'empty'}")


@pytest.mark.parametrize("name", ["progressive.jpg", "baseline.jpg", "grey.png", "flat.gif", "wide.bmp"])
def test_images_that_would_fill_the_memory(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(claimed(name, 65500, 65500))
    for options in ([], ["size=8,8", "mode=RGB"]):  # the decoder needs the full memory even at reduced size
        said = refused("read_images", f"path={file}", *options, "show=1")
        assert f"{file} is not a readable image: it has 65500 x 65500 pixels, more than max_pixels = 178956970" in said
        assert ": raise it if that is intended" in said
    picture(30, 20).save(file)
    assert "it has 20 x 30 pixels, more than max_pixels = 599" in refused(
        "read_images", f"path={file}", "max_pixels=599", "show=1"
    )
    assert checked(PROGRAM, "read_images", f"path={file}", "max_pixels=600", "mode=RGB", "show=1")


@pytest.mark.parametrize(
    "arrays",
    [
        [np.arange(12.0).reshape(4, 3), np.arange(6.0).reshape(2, 3)],
        [np.arange(24, dtype=np.uint8).reshape(2, 3, 4)],
        [np.asfortranarray(np.arange(24).reshape(4, 3, 2)), np.arange(12).reshape(2, 3, 2)],
        [np.array([True, False, True]), np.array([False])],
        [np.arange(12).reshape(3, 4) % 3 == 0],
        [np.arange(5, dtype=">i4")],
        [np.arange(6, dtype=np.float16).reshape(2, 3)],
        [np.arange(20_000_000, dtype=np.int32)],
    ],
)
def test_numpy_files(tmp_path: Path, read: Read, arrays: list[Any]) -> None:
    for number, array in enumerate(arrays):
        np.save(tmp_path / f"{number}.npy", array)
    got = read("read_numpy", f"path={tmp_path}")
    dataset = trireme.data.read_numpy(tmp_path)
    if arrays[0].size < 1000:
        assert_same(got, dataset)
        return
    assert int(got.schema.metadata[b"fragments"]) == len(list(dataset._plan.source.fragments())) > 1
    np.testing.assert_array_equal(got.column("data").to_numpy(), arrays[0])


def test_numpy_files_that_cannot_be_read(tmp_path: Path, read: Read) -> None:
    good, bad = tmp_path / "a.npy", tmp_path / "b.npy"
    np.save(good, np.ones((2, 3)))
    for content, message in (
        (np.ones((2, 4)), f"a row of {bad} is double[4], but a row of {good} is"),
        (np.float64(3), f"{bad} is a single value"),
        (np.array(["text"]), f"{bad} is not a readable .npy file: its values are <U4"),
    ):
        np.save(bad, content)
        assert message in refused("read_numpy", f"path={tmp_path}")
    bad.write_text("no array at all")
    assert f"{bad} is not a readable .npy file" in refused("read_numpy", f"path={tmp_path}")
    bad.write_bytes(good.read_bytes()[:-1])
    assert f"{bad} is truncated" in refused("read_numpy", f"path={tmp_path}")
    got = read("read_numpy", f"path={tmp_path}/*.npy", "skip_bad_files=1", "include_paths=1")
    assert got.column("path").to_pylist() == [str(good)] * 2


def test_tfrecords(tmp_path: Path, read: Read) -> None:
    rows = [
        {
            "label": [number - 3],
            "name": [f"n{number}".encode()],
            "x": [0.5, float(number)],
            "many": [1 << 40] * (number % 3),
        }
        for number in range(3000)
    ]
    content = framed([example(row) for row in rows])
    (tmp_path / "a.tfrecord").write_bytes(content)
    (tmp_path / "b.tfrecord.gz").write_bytes(gzip.compress(content))
    assert_same(
        read("read_tfrecords", f"path={tmp_path}", "include_paths=1"),
        trireme.data.read_tfrecords(tmp_path, include_paths=True),
    )
    schema = pa.schema([("label", pa.list_(pa.int64())), ("many", pa.list_(pa.int64()))])
    schema = schema.append(pa.field("name", pa.string())).append(pa.field("x", pa.list_(pa.float32())))
    given = [f"column={field.name}:{str(field.type).replace('item: ', '')}" for field in schema]
    assert_same(
        read("read_tfrecords", f"path={tmp_path}", *given), trireme.data.read_tfrecords(tmp_path, schema=schema)
    )


def test_tfrecords_that_cannot_be_read(tmp_path: Path) -> None:
    good = framed([example({"x": [number]}) for number in range(10)])
    (tmp_path / "a.tfrecord").write_bytes(good)
    flipped = bytearray(good)
    flipped[-8] ^= 1
    bad = tmp_path / "b.tfrecord"
    for content, message in (
        (bytes(flipped), f"{bad}, record 9: wrong checksum"),
        (good[:-3], f"{bad} is truncated in record 9"),
        (framed([b"\xff\xff\xff"]), f"{bad}, record 0: this is not a tf.train.Example"),
        (framed([example({"x": [1, 2]})]), f"{bad}, record 0: feature 'x' has 2 values"),
    ):
        bad.write_bytes(content)
        assert message in refused("read_tfrecords", f"path={tmp_path}")
    assert "column 'x' is int32" in refused("read_tfrecords", f"path={tmp_path}", "column=x:int32")


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def saved(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def encoded(image: Any, kind: str) -> bytes:
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


@pytest.mark.parametrize("tar_format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_webdataset(tmp_path: Path, read: Read, tar_format: int) -> None:
    for shard, mode in (("a.tar", "w"), ("b.tgz", "w:gz")):
        with tarfile.open(tmp_path / shard, mode, format=tar_format) as tar:  # type: ignore[call-overload]
            folder = tarfile.TarInfo("data")
            folder.type = tarfile.DIRTYPE
            tar.addfile(folder)
            for number in range(100):
                key = f"data/{'long' * 30}/{number:04d}"
                add(tar, f"{key}.cls", f"{number}\n".encode())
                add(tar, f"{key}.caption.txt", f"caption {number} ü".encode())
                values = {"id": number, "tags": ["a"] * (number % 3), "inner": {"score": number / 2, "ok": True}}
                add(tar, f"{key}.json", json.dumps(values).encode())
                add(tar, f"{key}.vector.npy", saved(np.arange(3, dtype=np.float32) * number))
                add(tar, f"{key}.ragged.npy", saved(np.arange(number % 5)))
                add(tar, f"{key}.png", encoded(picture(5, 4, number), "png"))
                add(tar, f"{key}.jpg", encoded(picture(5 + number % 2, 4, number), "jpeg"))
                if number % 2:
                    add(tar, f"{key}.bin", bytes([number]))
    options = [f"path={tmp_path}"]
    assert_same(read("read_webdataset", *options), trireme.data.read_webdataset(tmp_path))
    raw = trireme.data.read_webdataset(tmp_path, decoder=None, suffixes=["cls", ".bin"], include_paths=True)
    got = read("read_webdataset", *options, "raw=1", "suffix=cls", "suffix=.bin", "include_paths=1")
    assert_same(got, raw)


def test_webdatasets_that_cannot_be_read(tmp_path: Path) -> None:
    def shard(name: str, *members: tuple[str, bytes]) -> bytes:
        with tarfile.open(tmp_path / name, "w") as tar:
            for member in members:
                add(tar, *member)
        return (tmp_path / name).read_bytes()

    good = shard("a.tar", ("x.cls", b"1"), ("x.txt", b"t"))
    bad = tmp_path / "b.tar"
    for members, message in (
        ([("y.cls", b"one")], f"{bad}: sample 'y', .cls: 'one' is not an integer"),
        ([("y.npy", b"one")], f"{bad}: sample 'y', .npy: it does not start with the .npy signature"),
        ([("y.png", b"one")], f"{bad}: sample 'y', .png: it is not a readable image"),
        ([("y.json", b"{")], f"{bad}: sample 'y', .json: it is not valid JSON"),
        ([("y.json", b"[" * 10**5 + b"]" * 10**5)], f"{bad}: sample 'y', .json: its values are nested deeper than 200"),
        ([("y.txt", b"\xff")], f"{bad}: sample 'y', .txt: it is not valid UTF-8"),
        ([("y.cls", b"1"), ("y.cls", b"2")], f"{bad}: sample 'y' has two files with the suffix .cls"),
        ([("y.bin", b"1")], f"{bad}: sample 'y' has a .bin, but the first samples have only cls, txt"),
    ):
        shard("b.tar", *members)
        assert message in refused("read_webdataset", f"path={tmp_path}")
    bad.write_bytes(good[:700])
    assert f"{bad} is not a readable tar file: it is truncated" in refused("read_webdataset", f"path={tmp_path}")
    bad.write_bytes(b"x" * 2000)
    assert f"{bad} is not a readable tar file: a header is corrupt" in refused("read_webdataset", f"path={tmp_path}")
    done = run(PROGRAM, "read_webdataset", f"path={tmp_path}", "skip_bad_files=1")
    assert done.stdout == "1 1 __key__ cls txt\n"
    assert f"1 of 2 files cannot be read and are skipped: {bad}" in done.stderr


def test_sql(tmp_path: Path, read: Read) -> None:
    file = tmp_path / "rows.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE t (id INTEGER, x, name TEXT, content BLOB, unknown)")
        rows = [(i, i if i % 2 else i / 4, f"n{i}" if i % 3 else None, bytes([i % 256])) for i in range(1000)]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, NULL)", rows)
    connection.close()

    query = "SELECT * FROM t WHERE name != ? ORDER BY id DESC"
    dataset = trireme.data.read_sql(query, lambda: sqlite3.connect(file), sql_params=("n7",))
    assert_same(read("read_sql", f"file={file}", f"query={query}", "parameter=n7"), dataset)
    empty = checked(PROGRAM, "read_sql", f"file={file}", "query=SELECT id, x FROM t WHERE id < 0")
    assert empty == "0 1 id x\n"
    assert read("own_connection", "query=seven!!").column("id").to_pylist() == list(range(7))

    for query, message in {
        "SELECT nowhere FROM t": "'SELECT nowhere FROM t': no such column: nowhere",
        "CREATE TABLE u (x)": "'CREATE TABLE u (x)': it returns no rows; expected a SELECT",
        "SELECT x FROM t WHERE id = ?": "it has 1 question marks, but there are 0 parameters",
    }.items():
        assert f"read_sql: {message}" in refused("read_sql", f"file={file}", f"query={query}").replace(
            f"'{query}': it has", "it has"
        )
    missing = tmp_path / "nothing.db"
    assert f"{missing}: unable to open" in refused("read_sql", f"file={missing}", "query=SELECT 1")
    mixed = refused("read_sql", f"file={file}", "query=SELECT 1 AS a UNION ALL SELECT 'x'")
    assert "column 'a': a list of int64 and string" in mixed

    later = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 60000) SELECT {} AS a FROM n"
    promoted = later.format("iif(i < 55000, i, 0.5)")
    dataset = trireme.data.read_sql(promoted, lambda: sqlite3.connect(file))
    assert_same(read("read_sql", f"file={file}", f"query={promoted}"), dataset)
    bytes_after_text = later.format("iif(i < 50000, 't', x'00')")
    message = refused("read_sql", f"file={file}", f"query={bytes_after_text}")
    assert "column 'a' is" in message and "from row 50000 on" in message


def test_files_in_a_store_elsewhere(tmp_path: Path, bucket: Bucket, read: Read) -> None:
    from pyarrow.fs import FileSystem

    options = f"?region=us-east-1&endpoint_override=127.0.0.1:{bucket.door.port}&scheme=http"
    store, root = FileSystem.from_uri(bucket.uri("arrays") + options)
    for number in range(3):
        with store.open_output_stream(f"{root}/{number}.npy") as out:
            out.write(saved(np.full((4, 2), number)))
    got = read("read_numpy", f"path={bucket.uri('arrays') + options}")
    np.testing.assert_array_equal(numpy_of(got.column("data")), np.repeat(np.arange(3), 4)[:, None].repeat(2, 1))
