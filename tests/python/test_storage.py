"""Paths, URIs and filesystems from users, and the interface between pyarrow and the core."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from s3_server import Bucket
from trireme import ConfigError
from trireme._storage import ArrowFiles, Location, as_arrow, check_usable, resolve

fs = pytest.importorskip("pyarrow.fs")


@pytest.fixture(params=["s3", "subtree", "fsspec", "custom"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ArrowFiles, str]:
    """A filesystem of each kind and a folder in it."""
    if request.param == "s3":
        bucket = request.getfixturevalue("bucket")
        return ArrowFiles(bucket.filesystem), f"{bucket.name}/run"
    if request.param == "subtree":
        return ArrowFiles(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())), "a/run"
    if request.param == "fsspec":
        fsspec = pytest.importorskip("fsspec")
        return ArrowFiles(as_arrow(fsspec.filesystem("memory"))), f"/{tmp_path.name}/run"
    return ArrowFiles(fs.PyFileSystem(Careful(fs.LocalFileSystem()))), str(tmp_path / "run")


class Careful(fs.FileSystemHandler):  # type: ignore[misc]
    """A user-defined filesystem that does not rename onto an existing file, like HDFS."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def get_type_name(self) -> str:
        return "careful"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Any) -> Any:
        return self.inner.get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        return self.inner.get_file_info(selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self.inner.create_dir(path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        self.inner.delete_dir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        self.inner.delete_dir_contents(path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        self.inner.delete_file(path)

    def move(self, src: str, dest: str) -> None:
        if os.path.exists(dest):
            raise FileExistsError(dest)
        self.inner.move(src, dest)

    def copy_file(self, src: str, dest: str) -> None:
        self.inner.copy_file(src, dest)

    def open_input_stream(self, path: str) -> Any:
        return self.inner.open_input_stream(path)

    def open_input_file(self, path: str) -> Any:
        return self.inner.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        return self.inner.open_output_stream(path)

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError


def test_files_and_folders(place: tuple[ArrowFiles, str], tmp_path: Path) -> None:
    files, folder = place
    assert files.list_files(folder) == []
    assert files.list_folders(folder) == []
    assert not files.exists(folder)
    files.make_folder(folder)
    files.write(f"{folder}/a", b"first")
    files.write(f"{folder}/a", b"second")
    assert files.read(f"{folder}/a") == b"second"
    (tmp_path / "mine").write_bytes(b"x" * 100_000)
    (tmp_path / "empty").write_bytes(b"")
    files.upload(str(tmp_path / "mine"), f"{folder}/checkpoint/deep/model")
    files.upload(str(tmp_path / "empty"), f"{folder}/checkpoint/empty")
    assert files.list_files(folder) == [("a", 6), ("checkpoint/deep/model", 100_000), ("checkpoint/empty", 0)]
    assert files.list_folders(folder) == ["checkpoint"]
    assert files.exists(f"{folder}/checkpoint")
    files.download(f"{folder}/checkpoint/deep/model", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == (tmp_path / "mine").read_bytes()
    files.remove_file(f"{folder}/a")
    files.remove_folder(f"{folder}/checkpoint")
    assert files.list_files(folder) == []
    assert files.list_folders(folder) == []


def test_removing_what_is_not_there_is_fine(place: tuple[ArrowFiles, str]) -> None:
    files, folder = place
    files.remove_file(f"{folder}/nothing")
    files.remove_folder(f"{folder}/nothing")


def test_errors_name_what_was_done_and_where(place: tuple[ArrowFiles, str], tmp_path: Path) -> None:
    files, folder = place
    with pytest.raises(FileNotFoundError, match=f"cannot read .*{folder}/nothing"):
        files.read(f"{folder}/nothing")
    with pytest.raises(FileNotFoundError, match=f"cannot download .*{folder}/nothing"):
        files.download(f"{folder}/nothing", str(tmp_path / "x"))
    with pytest.raises(FileNotFoundError, match=f"cannot upload {tmp_path}/no to .*{folder}/x"):
        files.upload(str(tmp_path / "no"), f"{folder}/x")
    assert not files.exists(f"{folder}/x")


def test_a_file_that_breaks_off_is_not_left_behind(place: tuple[ArrowFiles, str], tmp_path: Path) -> None:
    files, folder = place
    files.make_folder(folder)
    # Reading a folder fails after the target was opened.
    broken = tmp_path / "broken"
    broken.mkdir()
    with pytest.raises(OSError, match=f"cannot upload {broken}"):
        files.upload(str(broken), f"{folder}/x")
    assert files.list_files(folder) == []


def test_in_parts(bucket: Bucket, tmp_path: Path) -> None:
    content = os.urandom(40 << 20)
    (tmp_path / "large").write_bytes(content)
    files = ArrowFiles(bucket.connect())
    files.upload(str(tmp_path / "large"), f"{bucket.name}/large")
    files.download(f"{bucket.name}/large", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == content


def test_no_empty_objects_where_folders_were(bucket: Bucket, tmp_path: Path) -> None:
    files = ArrowFiles(bucket.filesystem)
    for name in ("run/checkpoint_0/a", "run/checkpoint_0/deep/b", "run/other"):
        files.make_folder(f"{bucket.name}/{os.path.dirname(name)}")
        files.write(f"{bucket.name}/{name}", b"x")
    files.remove_file(f"{bucket.name}/run/checkpoint_0/a")
    files.remove_folder(f"{bucket.name}/run/checkpoint_0")
    assert [key for key in bucket.objects() if "checkpoint_0" in key] == []
    assert "run/other" in bucket.objects()


def test_travels(bucket: Bucket) -> None:
    files = ArrowFiles(bucket.filesystem)
    files.write(f"{bucket.name}/a", b"x")
    other = pickle.loads(pickle.dumps(files))
    assert other == files
    assert other.read(f"{bucket.name}/a") == b"x"


def test_local_paths_in_every_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = Location(str(tmp_path / "a b"))
    local, below = fs.LocalFileSystem(), fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    for spelling in (tmp_path / "a b", "a b", "./a b/", "~/a b", f"file://{tmp_path}/a%20b"):
        assert resolve(spelling) == folder
    assert resolve(tmp_path / "a b", local) == folder
    assert resolve("~/a b", local) == folder
    assert resolve("a b", below) == folder
    fsspec = pytest.importorskip("fsspec")
    assert resolve(str(tmp_path / "a b"), fsspec.filesystem("file")) == folder


def test_remote_paths(bucket: Bucket) -> None:
    found = resolve(f"s3://key:secret@{bucket.name}/a/b/?region=us-east-1")
    assert (found.path, found.uri, found.filesystem.type_name) == (
        f"{bucket.name}/a/b",
        f"s3://{bucket.name}/a/b",
        "s3",
    )
    assert str(found) == f"s3://{bucket.name}/a/b"
    assert "secret" not in str(found)
    inside = resolve(f"{bucket.name}/a/b", bucket.filesystem)
    assert (inside.path, inside.uri, str(inside)) == (f"{bucket.name}/a/b", "", f"s3://{bucket.name}/a/b")
    assert found.join("c").uri == f"s3://{bucket.name}/a/b/c"


@pytest.mark.parametrize(
    ("path", "filesystem", "words"),
    [
        ("", None, "expected a path"),
        ("relative/path", fs.LocalFileSystem(), "is relative"),
        ("file:///a", fs.LocalFileSystem(), "the path inside that filesystem, '/a'"),
        ("s3://bucket/a?region=x", fs.LocalFileSystem(), "the path inside that filesystem, 'bucket/a'"),
        ("a", object(), "fsspec"),
        ("s3://", None, "expected a bucket"),
        ("nothing://x", None, "no filesystem for nothing://"),
        ("hdfs://nowhere:1/x", None, "hdfs://nowhere:1/x"),
    ],
)
def test_refused(path: str, filesystem: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=r"storage_(path|filesystem)") as caught:
        check_usable(resolve(path, filesystem, "storage_path"), "storage_path")
    assert words in str(caught.value)


def test_a_bucket_that_is_not_there(bucket: Bucket) -> None:
    with pytest.raises(ConfigError, match="no bucket named 'other'"):
        check_usable(resolve("s3://other/x"), "storage_path")


def test_a_server_that_is_not_there(bucket: Bucket) -> None:
    bucket.door.shut()
    try:
        with pytest.raises(ConfigError, match=r"cannot be used: .*Check the address"):
            check_usable(resolve(bucket.uri("x")), "storage_path")
    finally:
        bucket.door.open()
    check_usable(resolve(bucket.uri("x")), "storage_path")


def test_storage_that_may_not_be_written(tmp_path: Path) -> None:
    class Denied(Careful):
        def open_output_stream(self, path: str, metadata: Any) -> Any:
            raise PermissionError("ACCESS_DENIED")

    filesystem = fs.PyFileSystem(Denied(fs.LocalFileSystem()))
    with pytest.raises(ConfigError, match="ACCESS_DENIED"):
        check_usable(resolve(str(tmp_path), filesystem), "storage_path")


def test_one_lost_request_does_not_refuse_the_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trireme._storage._PROBE_PAUSES_S", (0.0, 0.0))
    lost: list[str] = []

    class Lossy(Careful):
        allowed = 2

        def open_output_stream(self, path: str, metadata: Any) -> Any:
            if len(lost) < self.allowed:
                lost.append(path)
                raise OSError("not answered")
            return super().open_output_stream(path, metadata)

    check_usable(resolve(str(tmp_path), fs.PyFileSystem(Lossy(fs.LocalFileSystem()))), "storage_path")
    assert len(lost) == 2
    assert not any(tmp_path.iterdir())
    Lossy.allowed = 100
    with pytest.raises(ConfigError, match="not answered"):
        check_usable(resolve(str(tmp_path), fs.PyFileSystem(Lossy(fs.LocalFileSystem()))), "storage_path")
    assert len(lost) == 5


def test_without_pyarrow_the_extra_is_named() -> None:
    source = """
import sys
sys.modules["pyarrow"] = None
from trireme._storage import resolve
assert resolve("/tmp").path == "/tmp"
for arguments in (("s3://bucket/x",), ("/tmp", object())):
    try:
        resolve(*arguments)
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.count("pip install trireme[data]") == 2
