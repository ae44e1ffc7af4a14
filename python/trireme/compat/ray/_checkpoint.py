"""The methods of Ray's older checkpoints, which trireme.Checkpoint gets in compatibility mode."""

from __future__ import annotations

import io
import tarfile
import tempfile
from typing import Any

from trireme._checkpoint import Checkpoint
from trireme.compat.ray._version import note_v1

_PREPROCESSOR = "preprocessor_pkl"


def extend_checkpoint() -> None:
    """One class for both: what fit() and get_checkpoint() return is a ray.train.Checkpoint."""
    for name, function in _METHODS.items():
        if not hasattr(Checkpoint, name):
            setattr(Checkpoint, name, function)


def _from_uri(cls: type[Checkpoint], uri: str) -> Checkpoint:
    note_v1("Checkpoint.from_uri")
    return cls(uri)


def _to_uri(self: Checkpoint, uri: str) -> str:
    """Copies it there."""
    from pyarrow import fs

    from trireme._storage import resolve

    where = resolve(uri)
    with self.as_directory() as folder:
        fs.copy_files(folder, where.path, fs.LocalFileSystem(), where.filesystem or fs.LocalFileSystem())
    return uri


def _uri(self: Checkpoint) -> str:
    where = self._where()
    return where.uri or f"file://{where.path}"


def _to_bytes(self: Checkpoint) -> bytes:
    """The files as a tar archive."""
    note_v1("Checkpoint.to_bytes")
    with io.BytesIO() as buffer:
        with self.as_directory() as folder, tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.add(folder, arcname=".")
        return buffer.getvalue()


def _from_bytes(cls: type[Checkpoint], data: bytes) -> Checkpoint:
    folder = tempfile.mkdtemp(prefix="trireme_checkpoint_")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder, filter="data")
    return cls(folder)


def _representation(self: Checkpoint) -> tuple[str, Any]:
    return ("data_dict", self._state) if self._state is not None else ("local_path", self.path)


def _get_preprocessor(self: Checkpoint) -> Any:
    from trireme.data.preprocessors import Preprocessor

    text = self.get_metadata().get(_PREPROCESSOR)
    return Preprocessor.deserialize(text) if text else None


def _set_preprocessor(self: Checkpoint, preprocessor: Any) -> None:
    self.update_metadata({_PREPROCESSOR: preprocessor.serialize()})


_METHODS: dict[str, Any] = {
    "from_uri": classmethod(_from_uri),
    "to_uri": _to_uri,
    "uri": property(_uri),
    "to_bytes": _to_bytes,
    "from_bytes": classmethod(_from_bytes),
    "get_internal_representation": _representation,
    "get_preprocessor": _get_preprocessor,
    "set_preprocessor": _set_preprocessor,
}
