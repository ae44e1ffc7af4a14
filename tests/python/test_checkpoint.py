from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

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


def test_storage_that_is_not_there_yet() -> None:
    with pytest.raises(NotImplementedError, match="s3"):
        Checkpoint("s3://bucket/x")


def test_copies(folder: Path, tmp_path: Path) -> None:
    checkpoint = Checkpoint.from_directory(folder)
    target = checkpoint.to_directory(tmp_path / "copy")
    assert Path(target, "deep/file").read_text() == "content"
    own = checkpoint.to_directory()
    assert own != str(folder)
    assert Path(own, "deep/file").read_text() == "content"
    with checkpoint.as_directory() as path:
        assert Path(path, "deep/file").read_text() == "content"


def test_copy_of_what_is_gone(tmp_path: Path) -> None:
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


def test_repr_and_pickle(folder: Path) -> None:
    checkpoint = pickle.loads(pickle.dumps(Checkpoint(folder)))
    assert repr(checkpoint) == f"Checkpoint(filesystem=local, path={folder})"
