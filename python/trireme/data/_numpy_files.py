"""Arrays in .npy files."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pyarrow as pa

from trireme import _core
from trireme._core import count_of
from trireme.data._file_source import (
    FileFragment,
    FileSource,
    Placed,
    ReadFilesOptions,
    in_threads,
    read_files,
)
from trireme.data._fragment import DataError, Fragment
from trireme.data._memory import BATCH_BYTES, rows_of_batch
from trireme.data._paths import File
from trireme.data._tensors import array_of

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

# Larger files are split into fragments, which several threads read.
_FRAGMENT_BYTES = 4 * BATCH_BYTES
_FIRST_READ = 256  # large enough for nearly every header


def read_numpy(paths: Any, *, allow_pickle: bool = False, **options: Unpack[ReadFilesOptions]) -> Dataset:
    """.npy files: a row for each index of the first dimension, in the column "data"."""
    if allow_pickle:
        raise _core.ConfigError(
            "read_numpy: allow_pickle = True: arrays of objects are not supported; save numbers or text"
        )
    return read_files("read_numpy", paths, NumpySource, options, extensions=("npy",))


@dataclass(frozen=True)
class _Header:
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool
    begin: int  # of the values, in bytes

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def end(self) -> int:
        return self.begin + math.prod(self.shape) * self.dtype.itemsize


class NumpySource(FileSource):
    def _infer(self, file: File) -> pa.Schema:
        header = _header(file)
        sample = np.zeros((1, *header.shape[1:]), header.dtype)
        return pa.schema([("data", array_of(sample, f"data of {file.shown}").type)])

    def _plan(self, files: Sequence[Placed], body: pa.Schema) -> list[list[Fragment]]:
        first = self._listing.files()[0]
        names = self.schema().names

        def fragments_of(entry: Placed) -> list[Fragment]:
            file, constants = entry
            header = _header(file)
            kind = self._infer(file).field(0).type
            if kind != body.field(0).type:
                raise DataError(
                    f"read_numpy: a row of {file.shown} is {header.dtype}{list(header.shape[1:])}, but a row of "
                    f"{first.shown} is {body.field(0).type}: read them separately"
                )
            rows = header.shape[0]
            step = rows if header.fortran_order else max(1, _FRAGMENT_BYTES // max(header.row_bytes, 1))
            made: list[Fragment] = []
            for start in range(0, rows, step or 1):
                end = min(start + step, rows)
                part = "" if end - start == rows else f"rows {start} to {end - 1}"
                size = (end - start) * header.row_bytes
                options = (header, start, end)
                made.append(NumpyFragment(file, body, constants, names, options, part, end - start, size))
            return made

        return in_threads(fragments_of, files)


class NumpyFragment(FileFragment):
    """The options are the header of the file, the first row and the end."""

    def _batches(self, columns: Sequence[str], row: int) -> Iterator[pa.RecordBatch]:
        header, start, end = self._options
        begin = start + row
        step = rows_of_batch(header.row_bytes)
        with self._file.open_file() as handle:
            if header.fortran_order:
                handle.seek(header.begin)
                whole = np.frombuffer(handle.read(), header.dtype).reshape(header.shape, order="F")
            for at in range(begin, end, step):
                count = min(step, end - at)
                if header.fortran_order:
                    values = whole[at : at + count]
                else:
                    handle.seek(header.begin + at * header.row_bytes)
                    content = handle.read_buffer(count * header.row_bytes)
                    if content.size < count * header.row_bytes:
                        raise DataError(
                            f"{self._file.shown} is truncated: row {at + count - 1} of {header.shape[0]} is missing"
                        )
                    values = np.frombuffer(content, header.dtype).reshape(count, *header.shape[1:])
                yield pa.record_batch([array_of(values, "data")], ["data"])


def array_in(content: bytes) -> np.ndarray:
    """The array in a file's content. Raises ValueError if it is invalid."""
    header = _parsed(io.BytesIO(content))
    if len(content) < header.end:
        raise ValueError(f"it is truncated: {_too_short(len(content), header)}")
    values = np.frombuffer(content, header.dtype, math.prod(header.shape), header.begin)
    array: np.ndarray = values.reshape(header.shape, order="F" if header.fortran_order else "C")
    return array


def _parsed(handle: Any) -> _Header:
    """Raises ValueError if it is invalid."""
    content = b""
    found: tuple[str, tuple[int, ...], bool, int] | int = _FIRST_READ
    try:
        while isinstance(found, int):
            more = handle.read(found - len(content))
            if not more:
                raise ValueError("its header is truncated")
            content += more
            found = _core.parse_npy(content)
        descr, shape, fortran_order, begin = found
        return _Header(shape, np.dtype(descr), fortran_order, begin)
    except (RuntimeError, TypeError) as error:
        raise ValueError(str(error)) from None


def _too_short(size: int, header: _Header) -> str:
    return f"it has {count_of(size, 'byte')}, too few for the shape {list(header.shape)}"


def _header(file: File) -> _Header:
    try:
        with file.open_file() as handle:
            header = _parsed(handle)
    except ValueError as error:
        raise DataError(f"{file.shown} is not a readable .npy file: {error}") from error
    if file.size < header.end:
        raise DataError(f"{file.shown} is truncated: {_too_short(file.size, header)}")
    if not header.shape:
        raise DataError(f"{file.shown} is a single value: expected a dimension for the rows")
    return header
