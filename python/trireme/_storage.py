"""Resolves a user's path to a local folder or a location in a pyarrow filesystem."""

from __future__ import annotations

import copyreg
import importlib
import os
import posixpath
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from trireme import _core
from trireme._extras import imported

_CHUNK = 16 << 20
# pyarrow uploads parts in the background and holds them in memory; flushing regularly bounds that.
_CHUNKS_IN_FLIGHT = 8
# S3 allows 10,000 parts.
_MAX_CHUNKS = 5_000
# A single failed request must not refuse a run.
_PROBE_PAUSES_S = (0.1, 0.5)
_SCHEMES = "s3://, gs://, abfs://, hdfs://, file://"


@dataclass(frozen=True)
class Location:
    """A path in a filesystem; `filesystem` is None for the local one."""

    path: str
    filesystem: Any = None
    uri: str = ""  # without credentials and options; empty for local paths and for a storage_filesystem

    @property
    def local(self) -> bool:
        return self.filesystem is None

    def join(self, name: str) -> Location:
        uri = f"{self.uri.rstrip('/')}/{name}" if self.uri else ""
        return Location(posixpath.join(self.path, name), self.filesystem, uri)

    def parent_and_name(self) -> tuple[Location, str]:
        folder, name = posixpath.split(self.path)
        return Location(folder, self.filesystem, posixpath.dirname(self.uri)), name

    def files(self) -> ArrowFiles | _core.DriverFiles | None:
        """The filesystem in the form that the core expects."""
        if self.filesystem is None or isinstance(self.filesystem, _core.DriverFiles):
            return self.filesystem
        return ArrowFiles(self.filesystem)

    def __str__(self) -> str:
        files = self.files()
        if files is None:
            return self.path
        return self.uri or files.describe(self.path)


def resolve(path: str | os.PathLike[str], filesystem: Any = None, what: str = "path") -> Location:
    """Accepts local paths (including relative ones and ~), URIs, and paths inside a given filesystem."""
    text = os.fspath(path)
    if not isinstance(text, str) or not text:
        raise _core.ConfigError(f"{what} = {path!r}: expected a path or a URI ({_SCHEMES})")
    if filesystem is not None:
        return _inside(text, as_arrow(filesystem), what)
    scheme = text.partition("://")[0] if "://" in text else ""
    if scheme in ("", "file"):
        text = _path_of(text) if scheme else text
        return Location(os.path.abspath(os.path.expanduser(text)))
    return _from_uri(text, scheme, what)


def write_whole(path: str, content: bytes, mode: int = 0o666) -> None:
    """Replaces a local file atomically. The temporary name is random and must be new, so that another user with write
    access to the folder cannot place a link there."""
    place = os.path.join(os.path.dirname(path), f".trireme_tmp_{os.urandom(8).hex()}")
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(place, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(place)
        raise


def local_filesystem() -> Any:
    return import_arrow("the filesystem").LocalFileSystem()


def import_arrow(what: str) -> Any:
    return imported("pyarrow.fs", f"{what} needs pyarrow: pip install trireme[data]")


def as_arrow(filesystem: Any) -> Any:
    """Converts a pyarrow or fsspec filesystem to a pyarrow one."""
    fs = import_arrow("storage_filesystem")
    if isinstance(filesystem, fs.FileSystem):
        return filesystem
    if any(base.__module__.partition(".")[0] == "fsspec" for base in type(filesystem).__mro__):
        if getattr(filesystem, "protocol", None) in ("file", ("file", "local")):
            return fs.LocalFileSystem()
        return fs.PyFileSystem(fs.FSSpecHandler(filesystem))
    raise _core.ConfigError(
        f"storage_filesystem must be a pyarrow.fs.FileSystem or an fsspec filesystem, got {type(filesystem).__name__}"
    )


def check_usable(location: Location, what: str) -> None:
    """Checks before anything starts that files can be written there; raises ConfigError otherwise."""
    files = location.files()
    if not isinstance(files, ArrowFiles):
        return
    # Clients of object stores retry by themselves.
    pauses = [] if files.is_object_store else list(_PROBE_PAUSES_S)
    while True:
        try:
            return _probe(location, files, what)
        except _core.ConfigError:
            raise
        except Exception as error:
            if not pauses or isinstance(error, PermissionError):
                raise _core.ConfigError(
                    f"{what} = {location} cannot be used: {error}. Check the address, the network, and that the "
                    "credentials of this machine (environment or configuration files) allow reading and writing there"
                ) from error
        time.sleep(pauses.pop(0))


def _probe(location: Location, files: ArrowFiles, what: str) -> None:
    if files.is_object_store:
        bucket = location.path.partition("/")[0]
        if not files.exists(bucket):
            raise _core.ConfigError(f"{what} = {location}: no bucket named {bucket!r}; create it or correct the name")
    probe = posixpath.join(location.path, ".trireme_probe")
    files.make_folder(location.path)
    files.write(probe, b"")
    with suppress(OSError):  # the store may not allow deletion
        files.remove_file(probe)


def _inside(path: str, filesystem: Any, what: str) -> Location:
    if "://" in path:
        raise _core.ConfigError(
            f"{what} = {path!r} is a URI, which cannot be combined with storage_filesystem: use the path inside that "
            f"filesystem, {path.partition('://')[2].partition('?')[0]!r}, or the URI alone"
        )
    fs = import_arrow("storage_filesystem")
    base, inner = _unwrapped(filesystem)
    if isinstance(base, fs.LocalFileSystem):
        if not inner and not os.path.isabs(os.path.expanduser(path)):
            raise _core.ConfigError(f"{what} = {path!r} is relative; use an absolute path: {os.path.abspath(path)!r}")
        below = path.lstrip("/") if inner else os.path.expanduser(path)
        return Location(os.path.abspath(os.path.join(inner or "/", below)))
    if ".." in path.split("/"):
        raise _core.ConfigError(f"{what} = {path!r}: '..' is not supported in {filesystem.type_name}; remove it")
    if _is_object_store(filesystem):
        path = path.lstrip("/")
    if not path.strip("/"):
        raise _core.ConfigError(f"{what} = '': expected a path, such as 'bucket/folder'")
    return Location(path.rstrip("/"), filesystem)


def _from_uri(uri: str, scheme: str, what: str) -> Location:
    fs = import_arrow(f"{what} = {_without_secrets(uri)}")
    import pyarrow

    # Writes a small file with one request instead of three.
    quick = f"{uri}{'&' if '?' in uri else '?'}allow_delayed_open=true" if scheme == "s3" else uri
    label = _without_secrets(uri)
    try:
        try:
            filesystem, path = fs.FileSystem.from_uri(quick)
        except pyarrow.ArrowInvalid:  # an older pyarrow without that option, or a scheme that only fsspec supports
            known = scheme in ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
            filesystem, path = fs.FileSystem.from_uri(uri) if known else _from_fsspec(fs, uri, scheme, what)
    except _core.ConfigError:
        raise
    except Exception as error:
        raise _core.ConfigError(f"{what} = {label}: {error}") from error
    if not path.strip("/"):
        raise _core.ConfigError(f"{what} = {label}: expected a bucket and a path, such as {scheme}://bucket/folder")
    return Location(path.rstrip("/"), filesystem, label)


def _from_fsspec(fs: Any, uri: str, scheme: str, what: str) -> tuple[Any, str]:
    try:
        filesystem, path = importlib.import_module("fsspec").core.url_to_fs(uri)
    except (ImportError, ValueError) as error:
        raise _core.ConfigError(
            f"{what} = {_without_secrets(uri)}: no filesystem for {scheme}:// ({error}); use one of "
            f"{_SCHEMES}, install the fsspec package that provides it, or pass storage_filesystem"
        ) from error
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), path


def _path_of(uri: str) -> str:
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(uri).path)


def _without_secrets(uri: str) -> str:
    """Removes keys and passwords from a URI, which is shown and stored."""
    from urllib.parse import urlsplit

    parts = urlsplit(uri)
    user, at, host = parts.netloc.rpartition("@")
    shown = host if ":" in user else f"{user}{at}{host}"
    return f"{parts.scheme}://{shown}{parts.path}".rstrip("/")


def _unwrapped(filesystem: Any) -> tuple[Any, str]:
    """The innermost filesystem, and its folder that the outer ones use as root."""
    fs = import_arrow("storage_filesystem")
    inner = ""
    while isinstance(filesystem, fs.SubTreeFileSystem):
        inner = posixpath.join(filesystem.base_path, inner.lstrip("/"))
        filesystem = filesystem.base_fs
    return filesystem, inner


def _is_object_store(filesystem: Any) -> bool:
    """Whether it is a store without folders, in which a file appears only when it is complete."""
    return _unwrapped(filesystem)[0].type_name in ("s3", "gcs", "abfs")


def _driver_files() -> Any:
    return _core.driver_files()


# A location that a worker sends is a local one in the driver, and one on the driver's machine in other workers.
copyreg.pickle(_core.DriverFiles, lambda _: (_driver_files, ()))


class ArrowFiles:
    """Adapts a pyarrow filesystem to trireme::FileSystem. The core retries a method that raises."""

    def __init__(self, filesystem: Any) -> None:
        self.filesystem = filesystem
        self.is_object_store = _is_object_store(filesystem)

    def type_name(self) -> str:
        return str(self.filesystem.type_name)

    def describe(self, path: str) -> str:
        kind = self.type_name()
        if kind in ("s3", "gcs", "abfs", "hdfs"):
            return f"{'gs' if kind == 'gcs' else kind}://{path}"
        return f"{path} ({kind})"

    def exists(self, path: str) -> bool:
        with self._explained("look for", path):
            return bool(self._info(path).type.name != "NotFound")

    def read(self, path: str) -> bytes:
        with self._explained("read", path), self.filesystem.open_input_stream(path) as stream:
            content: bytes = stream.read()
        return content

    def write(self, path: str, content: bytes) -> None:
        with self._explained("write", path), self._appearing_whole(path) as place:
            stream = self._create(place)
            self._finish(stream, place, lambda: stream.write(content))

    def upload(self, local_file: str, path: str) -> None:
        with self._explained(f"upload {local_file} to", path), open(local_file, "rb", buffering=0) as source:
            chunk = max(_CHUNK, -(-os.fstat(source.fileno()).st_size // _MAX_CHUNKS))
            with self._appearing_whole(path) as place:
                stream = self._create(place)
                self._finish(stream, place, lambda: _copy(source, stream, chunk))

    def download(self, path: str, local_file: str) -> None:
        with (
            self._explained("download", path),
            self.filesystem.open_input_stream(path) as source,
            open(local_file, "wb", buffering=0) as target,
        ):
            while chunk := source.read(_CHUNK):
                target.write(chunk)

    def list_files(self, folder: str) -> list[tuple[str, int]]:
        with self._explained("list", folder):
            found = self._select(folder, recursive=True)
        prefix = folder.rstrip("/") + "/"
        return sorted((_below(info.path, prefix), info.size) for info in found if info.type.name == "File")

    def list_folders(self, folder: str) -> list[str]:
        with self._explained("list", folder):
            found = self._select(folder, recursive=False)
        return sorted(posixpath.basename(info.path) for info in found if info.type.name == "Directory")

    def make_folder(self, path: str) -> None:
        # In an object store it would create an empty object that stays when the folder's files are deleted.
        if not self.is_object_store:
            with self._explained("create", path):
                self.filesystem.create_dir(path, recursive=True)

    def remove_file(self, path: str) -> None:
        with self._explained("remove", path):
            try:
                self.filesystem.delete_file(path)
            except Exception:
                if self._info(path).type.name != "NotFound":
                    raise

    def remove_folder(self, path: str) -> None:
        with self._explained("remove", path):
            try:
                self.filesystem.delete_dir(path)
            except Exception:
                if self._info(path).type.name != "NotFound":
                    raise

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrowFiles) and bool(self.filesystem == other.filesystem)

    def __hash__(self) -> int:
        return hash(self.type_name())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.filesystem,)

    def _info(self, path: str) -> Any:
        return self.filesystem.get_file_info(path)

    def _select(self, folder: str, recursive: bool) -> list[Any]:
        fs = import_arrow("storage_filesystem")
        selector = fs.FileSelector(folder, recursive=recursive, allow_not_found=True)
        found: list[Any] = self.filesystem.get_file_info(selector)
        return found

    def _create(self, path: str) -> Any:
        try:
            return self.filesystem.open_output_stream(path)
        except FileNotFoundError:
            self.filesystem.create_dir(posixpath.dirname(path), recursive=True)
            return self.filesystem.open_output_stream(path)

    def _finish(self, stream: Any, path: str, fill: Any) -> None:
        """Closing the stream after a failure leaves a partial file, which is deleted."""
        try:
            fill()
        except BaseException:
            with suppress(Exception):
                stream.close()
            with suppress(Exception):
                self.filesystem.delete_file(path)
            raise
        stream.close()

    @contextmanager
    def _appearing_whole(self, path: str) -> Iterator[str]:
        """The path to write a file to so that readers never see a partial one."""
        if self.is_object_store:
            yield path
            return
        place = posixpath.join(posixpath.dirname(path), f".{posixpath.basename(path)}.{os.urandom(8).hex()}")
        yield place
        try:
            self.filesystem.move(place, path)
        except Exception:
            # Some filesystems (HDFS) do not rename onto an existing file.
            if self._info(path).type.name == "NotFound" or self._info(place).type.name == "NotFound":
                raise
            self.filesystem.delete_file(path)
            self.filesystem.move(place, path)

    @contextmanager
    def _explained(self, doing: str, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(f"cannot {doing} {self.describe(path)}: {_first_line(error)}") from error
        except PermissionError as error:
            raise PermissionError(f"cannot {doing} {self.describe(path)}: {_first_line(error)}") from error
        except Exception as error:
            kind = PermissionError if "ACCESS_DENIED" in str(error) else OSError
            raise kind(f"cannot {doing} {self.describe(path)}: {_first_line(error)}") from error


def _copy(source: Any, stream: Any, chunk_size: int) -> None:
    count = 0
    while chunk := source.read(chunk_size):
        stream.write(chunk)
        count += 1
        if count % _CHUNKS_IN_FLIGHT == 0:
            stream.flush()


def _below(path: str, prefix: str) -> str:
    # Some filesystems list paths with a leading slash.
    return path.removeprefix(prefix) if path.startswith(prefix) else path.lstrip("/").removeprefix(prefix.lstrip("/"))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
