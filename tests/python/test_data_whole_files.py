"""Images, arrays, records, shards and queries: formats that are decoded file by file."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import struct
import tarfile
import zlib
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from tfrecord_files import example, framed

pa = pytest.importorskip("pyarrow")

import trireme.data  # noqa: E402
from trireme import ConfigError  # noqa: E402
from trireme.data import DataError  # noqa: E402
from trireme.data._tensors import RaggedTensorType  # noqa: E402


def fragments_of(dataset: Any) -> list[Any]:
    return list(dataset._plan.source.fragments())


def tensors(dataset: Any, name: str) -> Any:
    return dataset.to_arrow().column(name).combine_chunks().to_numpy_ndarray()


def picture(height: int, width: int, seed: int = 0, mode: str = "RGB") -> Any:
    image = pytest.importorskip("PIL.Image")
    noise = np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8)
    return image.fromarray(noise).convert(mode)


def test_images_of_one_shape(tmp_path: Path) -> None:
    for number in range(70):
        picture(8, 6, number).save(tmp_path / f"{number:02d}.png")
    (tmp_path / "labels.csv").write_text("not an image")
    dataset = trireme.data.read_images(tmp_path, include_paths=True)
    assert dataset.schema().field("image").type == pa.fixed_shape_tensor(pa.uint8(), (8, 6, 3))
    np.testing.assert_array_equal(tensors(dataset, "image"), [np.asarray(picture(8, 6, n)) for n in range(70)])
    assert dataset.to_arrow().column("path").to_pylist()[69] == str(tmp_path / "69.png")
    fragments = fragments_of(dataset)
    # A fragment has several images, but not all, and can be opened in its middle.
    assert [fragment.rows for fragment in fragments] == [32, 32, 6]
    assert fragments[0].size_bytes == 32 * 8 * 6 * 3
    reader, first = fragments[1].open(columns=["image"], row=30)
    assert first == 30
    np.testing.assert_array_equal(
        reader.read_all().column("image").combine_chunks().to_numpy_ndarray(),
        [np.asarray(picture(8, 6, n)) for n in (62, 63)],
    )


def test_images_are_resized_and_converted(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    picture(40, 30, 1).save(tmp_path / "a.png")
    picture(20, 50, 2, "L").save(tmp_path / "b.bmp")
    picture(10, 10, 3, "RGBA").save(tmp_path / "c.png")
    dataset = trireme.data.read_images(tmp_path, size=(12, 16), mode="RGB")
    expected = [
        np.asarray(image.open(tmp_path / name).convert("RGB").resize((16, 12), image.Resampling.BILINEAR))
        for name in ("a.png", "b.bmp", "c.png")
    ]
    np.testing.assert_array_equal(tensors(dataset, "image"), expected)
    gray = trireme.data.read_images(tmp_path, size=(4, 4), mode="L")
    assert tensors(gray, "image").shape == (3, 4, 4)


def test_a_reduced_jpeg_looks_like_the_original(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    smooth = picture(8, 8, 5).resize((800, 600), image.Resampling.BICUBIC)
    smooth.save(tmp_path / "a.jpg", quality=95)
    got = tensors(trireme.data.read_images(tmp_path, size=(60, 80), mode="RGB"), "image")[0]
    expected = np.asarray(image.open(tmp_path / "a.jpg").resize((80, 60), image.Resampling.BILINEAR))
    assert np.abs(got.astype(int) - expected).max() < 12


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("shape", [(1, 1), (4, 5), (37, 53), (224, 224), (30, 200), (301, 77)])
def test_images_are_resized_as_pillow_does_along_the_rows_first(shape: tuple[int, int], mode: str) -> None:
    from trireme.data._images import decode, pillow

    image = picture(*shape, seed=3, mode=mode)
    content = io.BytesIO()
    image.save(content, "PNG")
    for height, width in [(1, 1), (12, 16), (shape[0], 40), (64, shape[1]), (224, 224)]:
        bilinear = pillow().Resampling.BILINEAR
        # In two steps: Pillow 13 resizes the columns first if that is less work, and then rounds differently.
        wanted = image.resize((width, shape[0]), bilinear).resize((width, height), bilinear)
        got = decode(content.getvalue(), "x", (height, width), mode)
        np.testing.assert_array_equal(got, np.asarray(wanted))


def test_images_in_the_memory_of_an_older_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    from trireme.data import _images

    image = picture(20, 30, seed=4)
    shown = _images._pixels(image)

    def in_pieces(_: Any) -> Any:
        raise ValueError("Image is in multiple array blocks")

    monkeypatch.setattr(pa, "array", in_pieces)
    copied = _images._pixels(image)
    assert copied.shape == (20, 30, 3)
    np.testing.assert_array_equal(shown[..., :3], copied)


def test_parsers_that_read_lines_come_before_the_right_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow asks its parsers in the order in which the process has loaded them; the one of IM files reads lines."""
    image = pytest.importorskip("PIL.Image")
    image.init()
    monkeypatch.setattr(image, "ID", ["IM", *(name for name in image.ID if name != "IM")])
    picture(8, 6).save(tmp_path / "a.jpg")
    assert tensors(trireme.data.read_images(tmp_path), "image").shape == (1, 8, 6, 3)


def test_images_of_many_shapes(tmp_path: Path) -> None:
    picture(8, 6).save(tmp_path / "a.png")
    picture(4, 9).save(tmp_path / "b.png")
    picture(3, 3, mode="L").save(tmp_path / "c.png")
    dataset = trireme.data.read_images(tmp_path)
    assert isinstance(dataset.schema().field("image").type, RaggedTensorType)
    assert [row["image"].shape for row in dataset.take_all()] == [(8, 6, 3), (4, 9, 3), (3, 3)]


def test_images_that_cannot_be_read(tmp_path: Path) -> None:
    for number in range(5):
        picture(8, 8, number).save(tmp_path / f"{number}.png")
    content = (tmp_path / "1.png").read_bytes()
    (tmp_path / "1.png").write_bytes(content[: len(content) // 2])
    (tmp_path / "3.png").write_text("no image")
    with pytest.raises(DataError, match=r"3.png is not an image"):
        trireme.data.read_images(tmp_path).to_arrow()
    with pytest.raises(DataError, match=r"1.png is not a readable image"):
        trireme.data.read_images(tmp_path, size=(8, 8), mode="RGB").to_arrow()
    with pytest.warns(UserWarning, match=r"2 of 5 files cannot be read and are skipped: .*1.png, .*3.png"):
        kept = trireme.data.read_images(tmp_path, on_bad_file="skip")
        values = tensors(kept, "image")
    np.testing.assert_array_equal(values, [np.asarray(picture(8, 8, n)) for n in (0, 2, 4)])


def test_images_that_would_fill_the_memory(tmp_path: Path) -> None:
    wide, high = 65500, 65500
    for name in ("progressive.jpg", "baseline.jpg", "grey.png", "flat.gif", "wide.bmp"):
        (tmp_path / name).write_bytes(claimed(name, wide, high))
        for options in ({}, {"size": (8, 8), "mode": "RGB"}):
            message = rf"{name} is not a readable image: it has 65500 x 65500 pixels, more than max_pixels = 178956970"
            with pytest.raises(DataError, match=message + ": raise it"):
                trireme.data.read_images(tmp_path / name, **options).to_arrow()
        with pytest.warns(UserWarning, match="1 of 2 files"):
            picture(8, 8).save(tmp_path / "good.png")
            both = [tmp_path / "good.png", tmp_path / name]
            assert trireme.data.read_images(both, on_bad_file="skip").count() == 1
    picture(30, 20).save(tmp_path / "small.png")
    with pytest.raises(DataError, match=r"it has 20 x 30 pixels, more than max_pixels = 599"):
        trireme.data.read_images(tmp_path / "small.png", max_pixels=599).to_arrow()
    assert trireme.data.read_images(tmp_path / "small.png", max_pixels=600).count() == 1


def test_more_pixels_than_pillow_allows_on_request(tmp_path: Path, monkeypatch: Any) -> None:
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", 100)
    picture(30, 20).save(tmp_path / "small.png")
    assert tensors(trireme.data.read_images(tmp_path), "image").shape == (1, 30, 20, 3)
    assert image.MAX_IMAGE_PIXELS == 100


def claimed(name: str, width: int, height: int) -> bytes:
    """A small file that declares an image of this size."""
    buffer = io.BytesIO()
    kind = Path(name).suffix[1:].replace("jpg", "jpeg")
    options = {"progressive": True} if name.startswith("progressive") else {}
    picture(16, 16, mode="L").save(buffer, kind, **options)
    content = bytearray(buffer.getvalue())
    if kind == "jpeg":
        at = content.index(b"\xff\xc2" if options else b"\xff\xc0") + 5
        content[at : at + 4] = struct.pack(">HH", height, width)
    elif kind == "png":
        content[16:24] = struct.pack(">II", width, height)
        content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    elif kind == "gif":
        at = content.index(b"\x2c\x00\x00\x00\x00") + 5
        content[6:10] = content[at : at + 4] = struct.pack("<HH", width, height)
    else:
        content[18:26] = struct.pack("<ii", width, height)
    return bytes(content)


@pytest.mark.parametrize(
    "options", [{"size": (0, 3)}, {"size": 32}, {"size": (1, 2, 3)}, {"mode": "XYZ"}, {"max_pixels": 0}]
)
def test_arguments_for_images(tmp_path: Path, options: Any) -> None:
    pytest.importorskip("PIL.Image")
    with pytest.raises(ConfigError, match=f"read_images: {next(iter(options))} = "):
        trireme.data.read_images(tmp_path, **options)


def test_an_image_unlike_the_first_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trireme.data import _images

    monkeypatch.setattr(_images, "_LOOKED_AT", 1)
    picture(8, 8).save(tmp_path / "a.png")
    picture(8, 9).save(tmp_path / "b.png")
    with pytest.raises(DataError, match=r"b.png is uint8\[8, 9, 3\], but the first images are uint8\[8, 8, 3\].*size="):
        trireme.data.read_images(tmp_path).to_arrow()


def test_binary_files(tmp_path: Path) -> None:
    contents = [bytes([number]) * (number * 100) for number in range(50)]
    for number, content in enumerate(contents):
        (tmp_path / f"{number:02d}.gz").write_bytes(content)  # not decompressed, despite its name
    dataset = trireme.data.read_binary_files(tmp_path, include_paths=True)
    assert dataset.to_arrow().column("bytes").to_pylist() == contents
    assert [fragment.rows for fragment in fragments_of(dataset)] == [32, 18]


@pytest.mark.parametrize(
    "arrays",
    [
        [np.arange(12.0).reshape(4, 3), np.arange(6.0).reshape(2, 3)],
        [np.arange(24, dtype=np.uint8).reshape(2, 3, 4)],
        [np.asfortranarray(np.arange(12).reshape(4, 3)), np.arange(6).reshape(2, 3)],
        [np.array([True, False, True])],
        [np.arange(5, dtype=">i4")],
    ],
)
def test_numpy_files(tmp_path: Path, arrays: list[Any]) -> None:
    for number, array in enumerate(arrays):
        np.save(tmp_path / f"{number}.npy", array)
    dataset = trireme.data.read_numpy(tmp_path)
    table, expected = dataset.to_arrow(), np.concatenate(arrays)
    column = table.column("data").combine_chunks()
    got = column.to_numpy_ndarray() if expected.ndim > 1 else column.to_numpy(zero_copy_only=False)
    np.testing.assert_array_equal(got, expected)
    fragment = fragments_of(dataset)[0]
    assert fragment.rows == len(arrays[0])
    assert fragment.open(row=1)[0].read_all().num_rows == len(arrays[0]) - 1


def test_a_large_numpy_file_is_several_fragments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trireme.data import _numpy_files

    monkeypatch.setattr(_numpy_files, "_FRAGMENT_BYTES", 1000)
    np.save(tmp_path / "a.npy", np.arange(1000))
    dataset = trireme.data.read_numpy(tmp_path)
    assert [fragment.rows for fragment in fragments_of(dataset)] == [125] * 8
    assert dataset.to_arrow().column("data").to_pylist() == list(range(1000))


def test_numpy_files_that_cannot_be_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((2, 3)))
    for content, message in (
        (np.ones((2, 4)), r"a row of .*b.npy is float64\[4\], but a row of .*a.npy is"),
        (np.float64(3), "b.npy is a single value"),
        (np.array([{}], object), "b.npy is not a readable .npy file: it is an array of objects"),
    ):
        np.save(tmp_path / "b.npy", content, allow_pickle=True)
        with pytest.raises(DataError, match=message):
            trireme.data.read_numpy(tmp_path).to_arrow()
    (tmp_path / "b.npy").write_text("no array at all")
    with pytest.raises(DataError, match=r"b.npy is not a readable .npy file"):
        trireme.data.read_numpy(tmp_path).to_arrow()
    np.save(tmp_path / "b.npy", np.ones((2000, 3)))
    (tmp_path / "b.npy").write_bytes((tmp_path / "b.npy").read_bytes()[:-1])
    with pytest.raises(DataError, match=r"b.npy is truncated"):
        trireme.data.read_numpy(tmp_path).to_arrow()


@pytest.mark.parametrize(
    "shape", [(2**32, 2**32), (2**63, 2), (2**62, 4, 3), (2**32 + 1, 2**32), (0, 2**62, 8), (5, 2**61), (2**70,)]
)
@pytest.mark.parametrize("fortran", [False, True])
def test_shapes_whose_product_wraps_around(tmp_path: Path, shape: tuple[int, ...], fortran: bool) -> None:
    header = {"descr": "<f8", "fortran_order": fortran, "shape": shape}
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, header)
    content = buffer.getvalue() + bytes(64)
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(DataError, match=r"a.npy is not a readable .npy file: it has a shape that is too large: \["):
        trireme.data.read_numpy(tmp_path / "a.npy").to_arrow()
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        member = tarfile.TarInfo("x.npy")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    with pytest.raises(DataError, match=r"a.tar: sample 'x', .npy: it has a shape that is too large: \["):
        trireme.data.read_webdataset(tmp_path / "a.tar").to_arrow()


def test_json_of_brackets(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        member = tarfile.TarInfo("x.json")
        member.size = 2 * 10**5
        tar.addfile(member, io.BytesIO(b"[" * 10**5 + b"]" * 10**5))
    with pytest.raises(DataError, match=r"a.tar: sample 'x', .json: .*recursion"):
        trireme.data.read_webdataset(tmp_path / "a.tar").to_arrow()


def test_a_member_that_unpacks_to_more_than_a_column_holds(tmp_path: Path) -> None:
    member = tarfile.TarInfo("x.bin")
    member.size = 2**31
    (tmp_path / "a.tgz").write_bytes(gzip.compress(member.tobuf() + bytes(4096)))
    with pytest.raises(DataError, match=r"a.tgz: x.bin has 2147483648 bytes, more than the limit of 2147483647"):
        trireme.data.read_webdataset(tmp_path / "a.tgz").to_arrow()


def test_tfrecords(tmp_path: Path) -> None:
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
    dataset = trireme.data.read_tfrecords(tmp_path)
    assert dataset.schema() == pa.schema(
        [("label", pa.int64()), ("many", pa.list_(pa.int64())), ("name", pa.binary()), ("x", pa.list_(pa.float32()))]
    )
    assert dataset.count() == 6000
    got = dataset.to_arrow().slice(3000)
    assert got.column("label").to_pylist() == [row["label"][0] for row in rows]
    assert got.column("name").to_pylist() == [row["name"][0] for row in rows]
    assert got.column("x").to_pylist() == [row["x"] for row in rows]
    assert got.column("many").to_pylist() == [row["many"] or None for row in rows]
    reader, first = fragments_of(dataset)[0].open(columns=["label"], row=2500)
    assert first == 2500
    assert reader.read_all().column("label").to_pylist() == [row["label"][0] for row in rows[2500:]]


@pytest.mark.slow
def test_tfrecords_as_tensorflow_writes_them(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    feature = {"x": tf.train.Feature(float_list=tf.train.FloatList(value=[1.5, 2.5]))}
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    assert trireme.data.read_tfrecords(tmp_path).to_arrow().to_pylist() == [{"x": [1.5, 2.5]}]


def test_tfrecords_that_cannot_be_read(tmp_path: Path) -> None:
    good = framed([example({"x": [number]}) for number in range(10)])
    (tmp_path / "a.tfrecord").write_bytes(good)
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 1
    for content, message in (
        (bytes(flipped), r"b.tfrecord, record \d+: wrong checksum"),
        (good[:-3], r"b.tfrecord is truncated in record 9"),
        (b"just some text, which is no record", r"b.tfrecord.* (wrong checksum|truncated)"),
        (framed([b"\xff\xff\xff"]), r"b.tfrecord, record 0: this is not a tf.train.Example"),
        (
            framed([example({"x": [1, 2]})]),
            r"b.tfrecord, record 0: feature 'x' has 2 values, but one in the first records",
        ),
        (
            framed([example({"x": [1.5]})]),
            r"b.tfrecord, record 0: feature 'x' is float, but int64 in the first records",
        ),
        (framed([example({"y": [1]})]), r"b.tfrecord, record 0: feature 'y' is not in the first records"),
    ):
        (tmp_path / "b.tfrecord").write_bytes(content)
        with pytest.raises(DataError, match=message):
            trireme.data.read_tfrecords(tmp_path).to_arrow()
    (tmp_path / "b.tfrecord").write_bytes(framed([example({"x": [1, 2]})]))
    lists = trireme.data.read_tfrecords(tmp_path, schema=pa.schema([("x", pa.list_(pa.int64()))]))
    assert lists.to_arrow().column("x").to_pylist() == [[number] for number in range(10)] + [[1, 2]]


def shard(path: Path, samples: list[dict[str, bytes]]) -> None:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for number, sample in enumerate(samples):
            for suffix, content in sample.items():
                info = tarfile.TarInfo(f"deep/{path.name.partition('.')[0]}{number:04d}.{suffix}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def encoded(image: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def test_webdataset(tmp_path: Path) -> None:
    array = io.BytesIO()
    np.save(array, np.arange(3))
    samples = [
        {
            "png": encoded(picture(4, 5, number)),
            "cls": str(number).encode(),
            "txt": "ä".encode(),
            "json": json.dumps({"k": number}).encode(),
            "seg.npy": array.getvalue(),
            "raw": b"\x00",
        }
        for number in range(100)
    ]
    shard(tmp_path / "a.tar", samples)
    shard(tmp_path / "b.tar.gz", samples[:3])
    dataset = trireme.data.read_webdataset(tmp_path)
    assert dataset.columns() == ["__key__", "png", "cls", "txt", "json", "seg.npy", "raw"]
    table = dataset.to_arrow()
    assert table.column("cls").to_pylist() == [*range(100), 0, 1, 2]
    assert table.column("__key__").to_pylist()[100] == "deep/b0000"
    assert table.column("json").to_pylist()[7] == {"k": 7}
    assert table.column("txt").to_pylist()[0] == "ä" and table.column("raw").to_pylist()[0] == b"\x00"
    np.testing.assert_array_equal(tensors(dataset, "png")[99], np.asarray(picture(4, 5, 99)))
    np.testing.assert_array_equal(tensors(dataset, "seg.npy")[0], [0, 1, 2])
    reader, first = fragments_of(dataset)[0].open(columns=["cls"], row=90)
    assert reader.read_all().column("cls").to_pylist()[90 - first :] == list(range(90, 100))

    raw = trireme.data.read_webdataset(tmp_path, decoder=None, suffixes=["cls"])
    assert raw.to_arrow().column("cls").to_pylist()[1] == b"1"
    own = trireme.data.read_webdataset(tmp_path / "a.tar", decoder=lambda sample: {"n": int(sample["cls"]) * 2})
    assert own.to_arrow().to_pydict() == {"n": list(range(0, 200, 2))}


def test_webdatasets_that_cannot_be_read(tmp_path: Path) -> None:
    shard(tmp_path / "a.tar", [{"cls": b"1"}])
    (tmp_path / "b.tar").write_text("no tar file, but long enough" * 100)
    with pytest.raises(DataError, match=r"b.tar is not a readable tar file"):
        trireme.data.read_webdataset(tmp_path).to_arrow()
    for sample, message in (
        ({"cls": b"one"}, r"b.tar: sample 'deep/b0000', .cls: invalid literal"),
        ({"cls": b"1", "txt": b"x"}, r"b.tar: sample 'deep/b0000' has a .txt, but the first samples have only cls"),
        ({"cls": b"1", "png": b"x"}, r"b.tar: sample 'deep/b0000'"),
    ):
        shard(tmp_path / "b.tar", [sample])
        with pytest.raises(DataError, match=message):
            trireme.data.read_webdataset(tmp_path).to_arrow()
    shard(tmp_path / "b.tar", [{}])
    assert trireme.data.read_webdataset(tmp_path).count() == 1
    with pytest.raises(DataError, match=r"the decoder raised KeyError: 'nothing'"):
        trireme.data.read_webdataset(tmp_path / "a.tar", decoder=lambda sample: sample["nothing"]).to_arrow()


def test_sql(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    with sqlite3.connect(path) as connection:
        connection.execute("create table t(a int, b text, c real)")
        connection.executemany("insert into t values (?, ?, ?)", [(n, str(n), None) for n in range(1000)])
    connection.close()
    dataset = trireme.data.read_sql(
        "select a, b, c from t where a >= ? order by a desc", lambda: sqlite3.connect(path), sql_params=(400,)
    )
    table = dataset.to_arrow()
    assert table.column("a").to_pylist() == list(range(999, 399, -1))
    assert table.column("b").to_pylist()[0] == "999"
    assert trireme.data.read_sql("select a from t where a < 0", lambda: sqlite3.connect(path)).count() == 0
    with sqlite3.connect(path) as connection:
        connection.execute("delete from t")
    connection.close()
    # The query ran once: reading again returns the same rows.
    assert dataset.count() == 600
    assert cloudpickle.loads(cloudpickle.dumps(dataset)).count() == 600
    with pytest.raises(DataError, match=r"'select x from nowhere': OperationalError: no such table"):
        trireme.data.read_sql("select x from nowhere", lambda: sqlite3.connect(path)).to_arrow()
    with pytest.raises(ConfigError, match="connection_factory = 'sqlite"):
        trireme.data.read_sql("select 1", "sqlite:///db")  # type: ignore[arg-type]


def test_sql_with_other_types_in_later_batches(tmp_path: Path) -> None:
    """The rows are fetched in batches, whose types are promoted where nothing is lost."""

    def column(first: Any, *later: Any) -> Any:
        path = tmp_path / f"{first}{later}.db".replace("/", "")
        with sqlite3.connect(path) as connection:
            connection.execute("create table t(x)")
            connection.executemany("insert into t values (?)", [(value,) for value in [*[first] * 50_000, *later]])
        connection.close()
        dataset = trireme.data.read_sql("select x from t order by rowid", lambda: sqlite3.connect(path))
        return dataset.to_arrow().column("x")

    promoted = column(7, None, 0.5)
    assert promoted.type == pa.float64()
    assert promoted.to_pylist()[49_999:] == [7.0, None, 0.5]
    for first, later, types in ((7, "a", "string .*int64"), ("a", b"b", "binary .*string"), ("a", 7, "int64 .*string")):
        with pytest.raises(DataError, match=f"column 'x' is {types}"):
            column(first, later)
