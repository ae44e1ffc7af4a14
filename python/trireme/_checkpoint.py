"""A checkpoint: a directory plus metadata."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_METADATA_FILE = ".metadata.json"


class Checkpoint:
    """A directory with whatever the training function put there."""

    def __init__(self, path: str | os.PathLike[str], filesystem: Any = None) -> None:
        if filesystem is not None and getattr(filesystem, "type_name", None) != "local":
            raise NotImplementedError(f"a checkpoint on {filesystem!r} is not available yet; use a local directory")
        self.path = local_path(path)
        self._filesystem = filesystem

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        return cls(path)

    @property
    def filesystem(self) -> Any:
        """The pyarrow filesystem that `path` is a path in."""
        return self._filesystem or local_filesystem()

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copy the checkpoint into a directory, a new temporary one when none is given, and return its path."""
        if not os.path.isdir(self.path):
            raise FileNotFoundError(f"the checkpoint {self.path} is not there any more; was its run folder deleted?")
        target = os.fspath(path) if path is not None else tempfile.mkdtemp(prefix="trireme_checkpoint_")
        shutil.copytree(self.path, target, dirs_exist_ok=True)
        return os.path.abspath(target)

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        """The checkpoint as a local directory to read from; it may be the stored one itself, so do not write there."""
        yield self.path

    def get_metadata(self) -> dict[str, Any]:
        try:
            with open(os.path.join(self.path, _METADATA_FILE), encoding="utf-8") as file:
                metadata: dict[str, Any] = json.load(file)
        except FileNotFoundError:
            return {}
        return metadata

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        if not isinstance(metadata, dict):
            raise TypeError(f"checkpoint metadata must be a dict, got {type(metadata).__name__}")
        text = json.dumps(metadata)
        target = os.path.join(self.path, _METADATA_FILE)
        with open(f"{target}.{os.getpid()}", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(file.name, target)

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        self.set_metadata({**self.get_metadata(), **metadata})

    def __repr__(self) -> str:
        return f"Checkpoint(filesystem=local, path={self.path})"


def local_path(path: str | os.PathLike[str]) -> str:
    """An absolute path for what a user may write: relative, with ~, or as a file:// URI."""
    text = os.fspath(path)
    if "://" in text:
        from urllib.parse import unquote, urlsplit

        parts = urlsplit(text)
        if parts.scheme != "file":
            raise NotImplementedError(f"{text}: {parts.scheme} storage is not available yet; use a local path")
        text = unquote(parts.path)
    return os.path.abspath(os.path.expanduser(text))


def local_filesystem() -> Any:
    try:
        import pyarrow.fs
    except ImportError as error:
        raise ImportError("filesystem needs pyarrow: pip install trireme[data]") from error
    return pyarrow.fs.LocalFileSystem()
