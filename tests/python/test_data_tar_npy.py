"""The core's parsers of tar and .npy files against tarfile and NumPy."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st

import trireme
from trireme.data import DataError

_NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/.\0", exclude_categories=("Cs",)), min_size=1)
_MEMBERS = st.lists(
    st.tuples(
        st.lists(_NAMES.filter(lambda name: len(name.encode()) < 90), min_size=1, max_size=4),
        st.one_of(st.binary(max_size=2000), st.integers(0, 5000).map(bytes)),
        st.sampled_from([tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE]),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60)
@given(members=_MEMBERS, kind=st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))
def test_members_are_those_of_tarfile(tmp_path_factory: Any, members: list[Any], kind: int) -> None:
    path = tmp_path_factory.mktemp("tar") / "a.tar"
    with tarfile.open(path, "w", format=kind) as tar:
        for number, (parts, content, member_type) in enumerate([*members, (["last"], b"x", tarfile.REGTYPE)]):
            info = tarfile.TarInfo("/".join([*parts[:-1], f"{number}{parts[-1]}.bin"]))
            info.type = member_type
            if info.isfile():
                info.size = len(content)
                info.mtime = number * 1.5  # pax headers that matter to no one
            else:
                info.linkname = "x" * 120
            tar.addfile(info, io.BytesIO(content))
    with tarfile.open(path) as tar:
        expected = {
            member.name.removesuffix(".bin"): tar.extractfile(member).read()  # type: ignore[union-attr]
            for member in tar
            if member.isfile()
        }
    table = trireme.data.read_webdataset(path, decoder=None).to_arrow()
    assert dict(zip(table["__key__"].to_pylist(), table["bin"].to_pylist(), strict=True)) == expected


@settings(max_examples=40)
@given(data=st.data())
def test_damaged_tar_files_never_crash(tmp_path_factory: Any, data: st.DataObject) -> None:
    """They give an error that names the file, or the samples of an intact part."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for number in range(5):
            info = tarfile.TarInfo(f"{'deep/' * 30}{number}.bin")
            info.size = 700
            tar.addfile(info, io.BytesIO(bytes([number]) * 700))
    content = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("tar") / "a.tar"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        trireme.data.read_webdataset(path, decoder=None).to_arrow()
    except DataError as error:
        assert "a.tar" in str(error)


def test_tar_files_that_cannot_be_read(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("a.bin", "b.bin"):
            info = tarfile.TarInfo(name)
            info.size = 600
            tar.addfile(info, io.BytesIO(bytes(600)))
    good = buffer.getvalue()
    path = tmp_path / "x.tar"
    flipped = bytearray(good)
    flipped[1536 + 3] ^= 1  # in the header of the second member, where tarfile stops without an error
    for content, message in (
        (b"", "it is empty"),
        (good[:700], "it is truncated"),
        (bytes(flipped), "a header is corrupt"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"x.tar is not a readable tar file: {message}"):
            trireme.data.read_webdataset(path, decoder=None).to_arrow()


def test_a_key_that_is_no_text_names_the_file(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo("\udc80.bin"), io.BytesIO())
    with pytest.raises(DataError, match=r"x.tar: column '__key__'"):
        trireme.data.read_webdataset(tmp_path, decoder=None).to_arrow()


_DTYPES = st.one_of(
    np_st.boolean_dtypes(),
    np_st.integer_dtypes(endianness="?"),
    np_st.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    np_st.unicode_string_dtypes(endianness="<", max_len=5),
)


@settings(max_examples=80)
@given(data=st.data(), fortran=st.booleans())
def test_arrays_are_those_of_numpy(tmp_path_factory: Any, data: st.DataObject, fortran: bool) -> None:
    dtype = data.draw(_DTYPES)
    sides = 1 if dtype.kind == "U" else 3
    shape = data.draw(np_st.array_shapes(max_dims=sides, max_side=5))
    letters = st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=max(dtype.itemsize // 4, 1))
    array = data.draw(np_st.arrays(dtype, shape, elements=letters if dtype.kind == "U" else None))
    folder = tmp_path_factory.mktemp("npy")
    version = data.draw(st.sampled_from([(1, 0), (2, 0), (3, 0)]))
    with open(folder / "a.npy", "wb") as file:
        np.lib.format.write_array(file, np.asfortranarray(array) if fortran else array, version=version)
    expected = np.load(folder / "a.npy")
    batch = next(iter(trireme.data.read_numpy(folder).iter_batches(batch_size=None)))
    np.testing.assert_array_equal(batch["data"], expected)
    if dtype.kind == "U":
        return
    # In a tar file, with nothing behind its values.
    sample = io.BytesIO()
    np.save(sample, array)
    with tarfile.open(folder / "a.tar", "w") as tar:
        info = tarfile.TarInfo("x.npy")
        info.size = len(sample.getvalue())
        tar.addfile(info, io.BytesIO(sample.getvalue()))
    row = trireme.data.read_webdataset(folder / "a.tar").take(1)[0]
    np.testing.assert_array_equal(row["npy"], array)


@settings(max_examples=60)
@given(data=st.data())
def test_damaged_npy_files_are_refused_or_read_like_numpy(tmp_path_factory: Any, data: st.DataObject) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(24, dtype=np.int32).reshape(6, 4))
    content = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, 80))] = data.draw(st.sampled_from(list(b"0129<>|fiuOUSb(),'{}: \x00\xff")))
    path = tmp_path_factory.mktemp("npy") / "a.npy"
    path.write_bytes(content[: data.draw(st.integers(len(content) - 40, len(content)))])
    try:
        batches = list(trireme.data.read_numpy(path).iter_batches(batch_size=None))
    except DataError as error:
        assert "a.npy" in str(error)
        return
    expected = np.load(path)
    if len(expected):
        np.testing.assert_array_equal(batches[0]["data"], expected)
