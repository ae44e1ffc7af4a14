"""A checkpoint: a directory plus metadata."""

from __future__ import annotations

import atexit
import json
import os
import posixpath
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trireme import _core
from trireme._storage import Location, local_filesystem, resolve, write_whole

_METADATA_FILE = ".metadata.json"


class Checkpoint:
    """A directory of files written by the training function, on this machine or in a pyarrow filesystem."""

    # Whether the directory was made for this object: report() deletes it after the upload.
    _temporary = False

    def __init__(self, path: str | os.PathLike[str], filesystem: Any = None) -> None:
        self._location: Location | None = resolve(path, filesystem, "Checkpoint path")
        self._state: dict[Any, Any] | None = None
        self._allow_pickle = True
        # Files that are also in this machine's memory: name in the directory -> path to open.
        self._memory: Mapping[str, str] = {}

    @classmethod
    def at(cls, location: Location, memory: Mapping[str, str] | None = None) -> Checkpoint:
        made = cls.__new__(cls)
        made._location, made._state, made._allow_pickle, made._memory = location, None, True, memory or {}
        return made

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        return cls(path)

    @classmethod
    def from_dict(cls, state: dict[Any, Any], *, allow_pickle: bool = True) -> Checkpoint:
        """Create a checkpoint from a dict of values.

        Numbers, text, tensors and arrays in dicts, lists and tuples are stored in the format of save_state(). Each
        value of another type is pickled, or refused if `allow_pickle` is False. Nothing is written before report() or
        the first access to `path`.
        """
        if not isinstance(state, dict):
            raise TypeError(f"Checkpoint.from_dict() expects a dict, got {type(state).__name__}")
        made = cls.__new__(cls)
        made._location, made._state, made._allow_pickle, made._memory = None, state, allow_pickle, {}
        return made

    @property
    def path(self) -> str:
        return self._where().path

    @property
    def filesystem(self) -> Any:
        """The pyarrow filesystem that contains `path`."""
        filesystem = self._where().filesystem
        if isinstance(filesystem, _core.DriverFiles):
            raise RuntimeError(f"{self.path} is on the driver's machine, in no pyarrow filesystem; use as_directory()")
        return filesystem or local_filesystem()

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copy the checkpoint into a directory, by default a new temporary one, and return its path.

        Raises an error if a file differs from the committed checkpoint.
        """
        where = self._where()
        self._check_present(where)
        target = os.path.abspath(os.path.expanduser(path) if path is not None else _temporary_directory(keep=True))
        _core.Storage(where.files()).download(where.path, target)
        return target

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        """Open the checkpoint as a local, read-only directory. It may be the stored checkpoint itself.

        A remote checkpoint is downloaded once per machine and shared by the machine's workers.
        """
        where = self._where()
        self._check_present(where)
        if where.local:
            yield where.path
            return
        shared = _core.Storage(where.files()).acquire(where.path)
        try:
            yield str(shared.folder)
        finally:
            shared.release()

    def to_dict(self, *, allow_pickle: bool = True) -> dict[Any, Any]:
        """Return the values of a checkpoint written by from_dict(), save_state() or a C++ program.

        Pass allow_pickle=False for an untrusted checkpoint: unpickling can run arbitrary code.
        """
        if self._state is not None:
            return dict(self._state)
        from trireme._state import load_state

        try:
            state = load_state(self, allow_pickle=allow_pickle)
        except Exception as error:
            where = self._where()
            self._check_present(where)
            if self._has_state(where):
                raise
            raise FileNotFoundError(
                f"{where} has no state (state.json): it was not written by from_dict(), save_state() or a C++ program; "
                "read its files with as_directory()"
            ) from error
        if not isinstance(state, dict):
            raise TypeError(f"the state in {self.path} is a {type(state).__name__}, not a dict; use load_state()")
        return state

    def get_metadata(self) -> dict[str, Any]:
        where = self._where()
        files = where.files()
        place = where.join(_METADATA_FILE).path
        try:
            if files is not None:
                text = files.read(place).decode()
            else:
                with open(place, encoding="utf-8") as file:
                    text = file.read()
        except FileNotFoundError:
            return {}
        try:
            metadata: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{where.join(_METADATA_FILE)} is damaged: {error}; set_metadata() replaces it") from error
        return metadata

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        if not isinstance(metadata, dict):
            raise TypeError(f"checkpoint metadata must be a dict, got {type(metadata).__name__}")
        text = json.dumps(metadata)
        where = self._where()
        files = where.files()
        target = where.join(_METADATA_FILE).path
        if files is not None:
            files.write(target, text.encode())
            return
        write_whole(target, text.encode())

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        self.set_metadata({**self.get_metadata(), **metadata})

    def __repr__(self) -> str:
        if self._location is None:
            return f"Checkpoint(state={{{', '.join(map(repr, self._state or {}))}}})"
        files = self._location.files()
        kind = "local" if files is None else files.type_name()
        return f"Checkpoint(filesystem={kind}, path={self._location.path})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Checkpoint) or self._location is None or other._location is None:
            return self is other
        mine, its = self._location, other._location
        return mine.path == its.path and bool(mine.filesystem == its.filesystem)

    def __hash__(self) -> int:
        return hash(self._location.path) if self._location else id(self)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._location is None:
            return _from_dict, (type(self), self._state, self._allow_pickle)
        return _at, (type(self), self._location)

    def _where(self) -> Location:
        """Writes the state to a temporary directory on first access."""
        if self._location is None:
            from trireme._state import save_state

            assert self._state is not None
            folder = _temporary_directory(keep=False)
            save_state(folder, self._state, allow_pickle=self._allow_pickle)
            self._location, self._state = Location(folder), None
        return self._location

    def _has_state(self, where: Location) -> bool:
        """Whether any rank has stored a state: ranks other than 0 use subfolders."""
        files = where.files()
        if files is None:
            return any(Path(where.path).glob("**/state.json"))
        return any(posixpath.basename(path) == "state.json" for path, _ in files.list_files(where.path))

    def _check_present(self, where: Location) -> None:
        files = where.files()
        if not (os.path.isdir(where.path) if files is None else files.exists(where.path)):
            raise FileNotFoundError(f"checkpoint {where} does not exist: it or its run folder may have been deleted")


def _at(cls: type[Checkpoint], location: Location) -> Checkpoint:
    return cls.at(location)


def _from_dict(cls: type[Checkpoint], state: dict[Any, Any], allow_pickle: bool) -> Checkpoint:
    return cls.from_dict(state, allow_pickle=allow_pickle)


def _temporary_directory(keep: bool) -> str:
    folder = tempfile.mkdtemp(prefix="trireme_checkpoint_")
    if not keep:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
