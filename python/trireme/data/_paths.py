"""Resolves the user's paths, folders, globs and lists to files, local or in object stores."""

from __future__ import annotations

import fnmatch
import os
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs

from trireme import _core, _storage
from trireme._core import count_of
from trireme.data._fragment import DataError

_MAGIC = frozenset("*?[")
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".br": "brotli", ".tgz": "gzip"}


@dataclass(frozen=True)
class File:
    """A file as it was when the dataset was created; `check()` detects changes."""

    path: str
    filesystem: Any = field(hash=False)  # pyarrow's filesystems can be compared, but not hashed
    shown: str  # the path or URI, for messages
    name: str  # relative to the folder that the user gave
    given: str  # the path from the user's argument on: partitions are named in it
    size: int
    version: str
    remote: bool
    compression: str | None = None

    def check(self) -> None:
        """Raises DataError if the file has changed or was deleted, OSError if the store does not respond."""
        info = self.filesystem.get_file_info(self.path)
        if info.type == fs.FileType.NotFound:
            raise DataError(self._gone())
        self._compare(_version(info), info.size)

    def open_file(self) -> pa.NativeFile:
        with self._named():
            return self.filesystem.open_input_file(self.path)

    def open_stream(self) -> pa.NativeFile:
        """From its beginning, decompressed if its extension indicates compression."""
        with self._named():
            return self.filesystem.open_input_stream(self.path, compression=self.compression)

    def read(self) -> bytes:
        """All of it, decompressed if its extension indicates compression."""
        with self._named(), self.open_stream() as stream:
            content: bytes = stream.read()
        return content

    def read_raw(self) -> bytes:
        """All of it, unchanged. Checked without a separate request, because requests to a store are slow."""
        try:
            if not self.remote:
                with open(self.path, "rb", buffering=0) as local:
                    about = os.fstat(local.fileno())
                    self._compare(f"{about.st_size}-{about.st_mtime_ns}", about.st_size)
                    return local.read()
            with self._named(), self.filesystem.open_input_stream(self.path, compression=None) as stream:
                content: bytes = stream.read()
        except FileNotFoundError:
            raise DataError(self._gone()) from None
        if len(content) != self.size:
            self._compare("", len(content))
        return content

    def _gone(self) -> str:
        return f"{self.shown} was deleted since the dataset was created; restore it, or create a new dataset"

    def _compare(self, version: str, size: int) -> None:
        if version != self.version:
            raise DataError(
                f"{self.shown} has changed since the dataset was created (had {count_of(self.size, 'byte')}, now "
                f"{size}): the row counts are no longer valid; create a new dataset"
            )

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self.shown in str(error) or self.path in str(error):
                raise
            raise OSError(f"{self.shown}: {error}") from error


@dataclass(frozen=True)
class Selection:
    """Selects files. Nothing is listed before `files()`."""

    reader: str  # "read_csv", for errors
    paths: tuple[str, ...]
    filesystem: Any = None
    extensions: tuple[str, ...] | None = None
    ignore_missing: bool = False
    partition_filter: Callable[[Any], Any] | None = None
    skip_paths: tuple[str, ...] = ()
    compression: str | None = "detect"

    def files(self) -> list[File]:
        """In the order of the paths, and sorted by path within a folder. Raises if there are none."""
        found: list[File] = []
        for path in self.paths:
            found.extend(self._of_path(path))
        skipped = {_storage.resolve(path, self.filesystem).path for path in self.skip_paths}
        found = [file for file in found if file.path not in skipped]
        if self.partition_filter is not None:
            found = _filtered(found, self.partition_filter)
        if not found:
            raise DataError(f"{self.reader}: no files remain of {_list(self.paths)}{self._kinds()}")
        return found

    def _of_path(self, path: str) -> list[File]:
        location = _storage.resolve(path, self.filesystem, f"{self.reader}: path")
        filesystem = location.filesystem or fs.LocalFileSystem()
        try:
            info = filesystem.get_file_info(location.path)
            if info.type == fs.FileType.NotFound and _MAGIC & set(location.path):
                return self._of_pattern(location, filesystem)
            if info.type == fs.FileType.NotFound:
                if self.ignore_missing:
                    return []
                raise DataError(f"{self.reader}: no such file or folder: {location}")
            if info.type == fs.FileType.Directory:
                return self._of_folder(location, filesystem, location.path)
        except OSError as error:
            raise OSError(f"{self.reader}: {location} cannot be listed: {error}") from error
        return [self._file(info, location, filesystem, posixpath.dirname(location.path))]

    def _of_folder(self, location: _storage.Location, filesystem: Any, root: str) -> list[File]:
        infos = filesystem.get_file_info(fs.FileSelector(location.path, recursive=True))
        below = [info for info in infos if info.type == fs.FileType.File and not _is_hidden(info.path, location.path)]
        wanted = [info for info in below if self._has_extension(info.path)]
        if not wanted and not self.ignore_missing and root == location.path:
            there = sorted(posixpath.basename(info.path) for info in below)
            raise DataError(
                f"{self.reader}: the folder {location} has no files{self._kinds()}"
                + (f"; there are {_list(there)}. file_extensions=None takes all of them" if there else "")
            )
        wanted.sort(key=lambda info: info.path)
        return [self._file(info, location, filesystem, root) for info in wanted]

    def _of_pattern(self, location: _storage.Location, filesystem: Any) -> list[File]:
        root, places = _expand(location.path, filesystem)
        exact = "." in posixpath.basename(location.path)  # *.pq names the extension itself
        found: list[File] = []
        for info in sorted(filesystem.get_file_info(places), key=lambda info: info.path):
            if info.type == fs.FileType.Directory:
                folder = _storage.Location(info.path, location.filesystem)
                found.extend(self._of_folder(folder, filesystem, root))
            elif info.type == fs.FileType.File and (exact or self._has_extension(info.path)):
                found.append(self._file(info, location, filesystem, root))
        found = list({file.path: file for file in found}.values())  # ** matches a folder and its contents
        if not found and not self.ignore_missing:
            raise DataError(f"{self.reader}: no files match {location}{'' if exact else self._kinds()}")
        return sorted(found, key=lambda file: file.path)

    def _file(self, info: Any, location: _storage.Location, filesystem: Any, root: str) -> File:
        shown = info.path if location.local else str(_storage.Location(info.path, location.filesystem))
        name = _relative(info.path, root) if root else info.path
        given = info.path.removeprefix(os.getcwd() + "/") if location.local and self._is_relative else info.path
        packed = self.compression
        if packed == "detect":
            packed = _COMPRESSIONS.get(posixpath.splitext(info.path)[1].lower())
        return File(
            info.path, filesystem, shown, name, given, info.size or 0, _version(info), not location.local, packed
        )

    @property
    def _is_relative(self) -> bool:
        return not any(posixpath.isabs(path) for path in self.paths)

    def _has_extension(self, path: str) -> bool:
        if self.extensions is None:
            return True
        lower = path.lower()
        if posixpath.splitext(lower)[1] in _COMPRESSIONS and not lower.endswith(self.extensions):
            lower = posixpath.splitext(lower)[0]
        return lower.endswith(self.extensions)

    def _kinds(self) -> str:
        return "" if self.extensions is None else f" ending in {' or '.join(self.extensions)}"


def select(
    reader: str,
    paths: Any,
    filesystem: Any = None,
    file_extensions: Sequence[str] | None = None,
    ignore_missing_paths: bool = False,
    partition_filter: Callable[[Any], Any] | None = None,
    skip_paths: Any = None,
    arrow_open_stream_args: dict[str, Any] | None = None,
) -> Selection:
    """Checks the arguments that all readers of files share."""
    compression = (arrow_open_stream_args or {}).get("compression", "detect")
    if compression not in (None, "detect", *_COMPRESSIONS.values()):
        raise _core.ConfigError(
            f"{reader}: compression = {compression!r}: expected one of {', '.join(_COMPRESSIONS.values())}"
        )
    extensions = None
    if file_extensions is not None:
        given = [file_extensions] if isinstance(file_extensions, str) else list(file_extensions)
        extensions = tuple("." + extension.lower().lstrip(".") for extension in given)
    if partition_filter is not None and not callable(partition_filter):
        raise _core.ConfigError(f"{reader}: partition_filter must be callable, got {partition_filter!r}")
    if filesystem is not None:
        filesystem = _storage.as_arrow(filesystem)
    return Selection(
        reader,
        _as_tuple(reader, paths),
        filesystem,
        extensions,
        ignore_missing_paths,
        partition_filter,
        () if skip_paths is None else _as_tuple(reader, skip_paths),
        compression,
    )


class PathPartitionFilter:
    """Keeps the files for whose partition (`year=2020/month=1` in the path) a function returns True."""

    def __init__(self, filter_fn: Callable[[dict[str, str]], bool]) -> None:
        self._filter = filter_fn

    @classmethod
    def of(cls, filter_fn: Callable[[dict[str, str]], bool], style: str = "hive") -> PathPartitionFilter:
        if str(getattr(style, "value", style)).lower() != "hive":
            raise _core.ConfigError(f"PathPartitionFilter.of(style={style!r}): expected 'hive'")
        return cls(filter_fn)

    def __call__(self, values: dict[str, str]) -> bool:
        return self._filter(values)


def partition_values(path: str) -> dict[str, str]:
    """{"year": "2020"} for a/year=2020/b.csv."""
    from urllib.parse import unquote

    parts = [part.partition("=") for part in posixpath.dirname(path).split("/") if "=" in part]
    return {unquote(key): unquote(value) for key, _, value in parts}


def _filtered(files: Iterable[File], keep: Callable[[Any], Any]) -> list[File]:
    return [file for file in files if keep(partition_values(file.given))]


def _as_tuple(reader: str, paths: Any) -> tuple[str, ...]:
    given = list(paths) if isinstance(paths, (list, tuple)) else [paths]
    if not given:
        raise _core.ConfigError(f"{reader}: the list of paths is empty")
    for path in given:
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            raise _core.ConfigError(f"{reader}: expected a path, a URI, a glob or a list of them; got {path!r}")
    return tuple(str(os.fspath(path)) for path in given)


def _expand(pattern: str, filesystem: Any) -> tuple[str, list[str]]:
    """The folder above the first wildcard, and all paths that match, level by level."""
    parts = pattern.split("/")
    first = next(index for index, part in enumerate(parts) if _MAGIC & set(part))
    root = "/".join(parts[:first]) or ("/" if pattern.startswith("/") else "")
    places = [root]
    for part in parts[first:]:
        if part == "**":
            places = [*places, *(info.path for info in _below(places, filesystem, True) if _is_folder(info))]
        elif _MAGIC & set(part):
            visible = part[0] in "._"
            infos = _below(places, filesystem, False)
            places = [info.path for info in infos if _matches(posixpath.basename(info.path), part, visible)]
        else:
            places = [posixpath.join(place, part) for place in places]
    return root, list(dict.fromkeys(places))


def _below(folders: Iterable[str], filesystem: Any, recursive: bool) -> list[Any]:
    found: list[Any] = []
    for folder in folders:
        selector = fs.FileSelector(folder, recursive=recursive, allow_not_found=True)
        try:
            found.extend(
                i for i in filesystem.get_file_info(selector) if not _is_hidden(i.path, folder) or not recursive
            )
        except NotADirectoryError:
            continue
        except OSError:
            if filesystem.get_file_info(folder).type != fs.FileType.File:
                raise
    return found


def _matches(name: str, pattern: str, visible: bool) -> bool:
    return fnmatch.fnmatchcase(name, pattern) and (visible or name[:1] not in "._")


def _is_folder(info: Any) -> bool:
    return bool(info.type == fs.FileType.Directory)


def _is_hidden(path: str, root: str) -> bool:
    below = _relative(path, root)
    return ("/." in below or "/_" in below or below[:1] in "._") and any(
        part[:1] in "._" and "=" not in part for part in below.split("/")
    )


def _relative(path: str, root: str) -> str:
    if path.startswith(root) and path[len(root) : len(root) + 1] == "/":
        return path[len(root) + 1 :]
    # Some filesystems list paths with a leading slash.
    return posixpath.relpath("/" + path.lstrip("/"), "/" + root.lstrip("/"))


def _version(info: Any) -> str:
    return f"{info.size}-{info.mtime_ns or 0}"


def _list(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
