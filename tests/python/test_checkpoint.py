from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import trireme
from s3_server import Bucket
from trireme import Checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "checkpoint"
    (made / "deep").mkdir(parents=True)
    (made / "deep/file").write_text("content")
    return made


def test_path_in_every_spelling(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("HOME", str(folder.parent))
    for spelling in (folder, str(folder), "checkpoint", "./checkpoint/", "~/checkpoint", f"file://{folder}"):
        assert Checkpoint(spelling).path == str(folder)


def test_copies(folder: Path, tmp_path: Path) -> None:
    checkpoint = Checkpoint.from_directory(folder)
    target = checkpoint.to_directory(tmp_path / "copy")
    assert Path(target, "deep/file").read_text() == "content"
    own = checkpoint.to_directory()
    assert own != str(folder)
    assert Path(own, "deep/file").read_text() == "content"
    with checkpoint.as_directory() as path:
        assert Path(path, "deep/file").read_text() == "content"


def test_copying_a_deleted_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        Checkpoint(tmp_path / "gone").to_directory()


def test_metadata(folder: Path) -> None:
    checkpoint = Checkpoint(folder)
    assert checkpoint.get_metadata() == {}
    checkpoint.set_metadata({"a": 1, "b": 2})
    checkpoint.update_metadata({"b": 3})
    assert Checkpoint(folder).get_metadata() == {"a": 1, "b": 3}
    assert sorted(os.listdir(folder)) == [".metadata.json", "deep"]


@pytest.mark.parametrize("bad", [[1], {"a": object()}])
def test_metadata_that_is_not_json(folder: Path, bad: Any) -> None:
    with pytest.raises(TypeError):
        Checkpoint(folder).set_metadata(bad)
    assert Checkpoint(folder).get_metadata() == {}


def test_damaged_metadata_is_an_error(folder: Path) -> None:
    (folder / ".metadata.json").write_text("{")
    with pytest.raises(ValueError, match=r"\.metadata\.json is damaged"):
        Checkpoint(folder).get_metadata()


def test_repr_and_pickle(folder: Path) -> None:
    checkpoint = pickle.loads(pickle.dumps(Checkpoint(folder)))
    assert repr(checkpoint) == f"Checkpoint(filesystem=local, path={folder})"


def test_equality(folder: Path, bucket: Bucket) -> None:
    assert Checkpoint(folder) == Checkpoint(str(folder))
    assert len({Checkpoint(folder), Checkpoint(folder)}) == 1
    assert Checkpoint(folder) != Checkpoint(folder.parent)
    assert Checkpoint(folder) != folder
    remote = Checkpoint("a/b", bucket.connect())
    assert remote == Checkpoint("a/b", bucket.connect())
    assert remote != Checkpoint("/a/b")
    assert repr(remote) == "Checkpoint(filesystem=s3, path=a/b)"


def test_filesystem(folder: Path, bucket: Bucket) -> None:
    fs = pytest.importorskip("pyarrow.fs")
    local = Checkpoint(folder).filesystem
    assert isinstance(local, fs.LocalFileSystem)
    assert local.get_file_info(f"{Checkpoint(folder).path}/deep/file").size == 7
    assert Checkpoint(bucket.uri("a")).filesystem.type_name == "s3"


@pytest.fixture
def remote(bucket: Bucket) -> Checkpoint:
    for name in ("a", "deep/b"):
        with bucket.filesystem.open_output_stream(f"{bucket.name}/checkpoint/{name}") as stream:
            stream.write(name.encode())
    return Checkpoint(f"{bucket.name}/checkpoint", bucket.connect())


def test_remote_copies(remote: Checkpoint, tmp_path: Path) -> None:
    target = remote.to_directory(tmp_path / "copy")
    assert target == str(tmp_path / "copy")
    assert Path(target, "deep/b").read_text() == "deep/b"
    assert Path(remote.to_directory(), "a").read_text() == "a"
    with remote.as_directory() as path:
        assert Path(path, "deep/b").read_text() == "deep/b"
    assert not os.path.exists(path), "a download is removed after its last reader"


def test_remote_directory_is_downloaded_once_for_all_of_the_machine(remote: Checkpoint) -> None:
    with remote.as_directory() as first, pickle.loads(pickle.dumps(remote)).as_directory() as second:
        assert first == second
    assert not os.path.exists(first)


def test_remote_metadata(remote: Checkpoint) -> None:
    assert remote.get_metadata() == {}
    remote.set_metadata({"a": 1, "b": 2})
    remote.update_metadata({"b": 3})
    assert pickle.loads(pickle.dumps(remote)).get_metadata() == {"a": 1, "b": 3}


def test_a_deleted_remote_checkpoint_is_an_error(bucket: Bucket) -> None:
    gone = Checkpoint(bucket.uri("gone"))
    for read in (gone.to_directory, gone.as_directory().__enter__):
        with pytest.raises(FileNotFoundError, match=f"s3://{bucket.name}/gone"):
            read()


STATE = {"epoch": 3, "lr": 0.5, "names": ["a", "b"], "nested": {"pair": (1, 2), 5: None}, "raw": b"\x00\x01"}


def test_from_dict_writes_nothing_before_the_path_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    checkpoint = Checkpoint.from_dict(STATE)
    assert checkpoint.to_dict() == STATE
    assert repr(checkpoint) == "Checkpoint(state={'epoch', 'lr', 'names', 'nested', 'raw'})"
    assert list(tmp_path.iterdir()) == []
    assert Path(checkpoint.path).parent == tmp_path
    assert Checkpoint(checkpoint.path).to_dict() == STATE
    assert checkpoint.to_dict() == STATE
    checkpoint.set_metadata({"a": 1})
    assert checkpoint.get_metadata() == {"a": 1}


def test_from_dict_travels(tmp_path: Path) -> None:
    assert pickle.loads(pickle.dumps(Checkpoint.from_dict(STATE))).to_dict() == STATE
    target = Checkpoint.from_dict(STATE).to_directory(tmp_path / "x")
    assert Checkpoint(target).to_dict() == STATE


def test_to_dict_of_what_save_state_wrote(tmp_path: Path) -> None:
    trireme.save_state(tmp_path / "state", STATE)
    assert Checkpoint(tmp_path / "state").to_dict() == STATE


def test_objects_are_pickled_separately_and_only_read_if_allowed(tmp_path: Path) -> None:
    state = {"plain": 1, "odd": {"key": frozenset({1, 2})}}
    folder = Checkpoint.from_dict(state).to_directory(tmp_path / "x")
    assert Checkpoint(folder).to_dict() == state
    with pytest.raises(TypeError, match=r"odd.*key.*allow_pickle=True"):
        Checkpoint(folder).to_dict(allow_pickle=False)
    with pytest.raises(TypeError, match=r"odd.*key.*frozenset"):
        Checkpoint.from_dict(state, allow_pickle=False).to_directory(tmp_path / "y")


def test_to_dict_of_a_directory_without_a_state(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match="has no state"):
        Checkpoint(folder).to_dict()


def test_from_dict_takes_a_dict() -> None:
    with pytest.raises(TypeError, match="expects a dict, got list"):
        Checkpoint.from_dict([1])  # type: ignore[arg-type]
