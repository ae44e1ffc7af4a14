"""Readers with one row per file."""

from __future__ import annotations

import hashlib
import itertools
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from trireme.data._column_ops import batch_with
from trireme.data._file_source import FileSource, Placed, ReadFilesOptions, read_files
from trireme.data._fragment import DataError, Fragment
from trireme.data._memory import BATCH_BYTES, rows_of_batch
from trireme.data._paths import File

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

# The maximum number of files, and of bytes, that one thread reads in sequence.
_FRAGMENT_FILES = 32
_FRAGMENT_BYTES = 4 * BATCH_BYTES
_BATCH_FILES = 8
_FIRST_FILES = 2  # the first batch needs a row or two of each of many fragments


def read_binary_files(paths: Any, **options: Unpack[ReadFilesOptions]) -> Dataset:
    """The content of each file, in the column "bytes"."""
    return read_files("read_binary_files", paths, BinarySource, options)


class FilesFragment(Fragment):
    """Several files, each of them a row: its content, and the columns from its path."""

    def __init__(
        self, files: Sequence[Placed], schema: pa.Schema, names: Sequence[str], row_bytes: float, options: Any = None
    ) -> None:
        self._files = list(files)
        self._options = options
        self._schema = schema
        self._names = list(names)
        self._row_bytes = row_bytes
        first = files[0][0]
        self.name = first.name if len(files) == 1 else f"{first.name} and {len(files) - 1} more"
        self.rows: int = len(files)
        self.size_bytes = int(row_bytes * len(files))
        self.remote = first.remote
        self.version = hashlib.sha256(" ".join(file.version for file, _ in files).encode()).hexdigest()[:16]

    @abstractmethod
    def _content(self, files: Sequence[File], field: pa.Field) -> pa.Array:
        """A value for each file. Errors name the file."""

    def open(self, columns: Sequence[str] | None = None, row: int = 0) -> tuple[pa.RecordBatchReader, int]:
        names = self._names if columns is None else list(columns)
        schema = pa.schema([self._schema.field(name) for name in names])
        return pa.RecordBatchReader.from_batches(schema, self._batches(schema, row)), row

    def _batches(self, schema: pa.Schema, row: int) -> Iterator[pa.RecordBatch]:
        content = self._schema.field(0)
        step = rows_of_batch(self._row_bytes, _BATCH_FILES)
        starts = [row, *range(row + min(step, _FIRST_FILES), self.rows, step)] if row < self.rows else []
        for start, stop in itertools.pairwise([*starts, self.rows]):
            part = self._files[start:stop]
            columns = [
                self._content([file for file, _ in part], content)
                if field.name == content.name
                else pa.array([constants[field.name].as_py() for _, constants in part], field.type)
                for field in schema
            ]
            yield batch_with(columns, schema, len(part))


class BinarySource(FileSource):
    def _infer(self, file: File) -> pa.Schema:
        return pa.schema([("bytes", pa.binary())])

    def _plan(self, files: Sequence[Placed], body: pa.Schema) -> list[list[Fragment]]:
        schema, names = self._whole_schema(), self.schema().names
        return [
            [BinaryFragment(part, schema, names, sum(file.size for file, _ in part) / len(part))]
            for part in together(files, [file.size for file, _ in files])
        ]


class BinaryFragment(FilesFragment):
    def _content(self, files: Sequence[File], field: pa.Field) -> pa.Array:
        for file in files:
            if file.size >= 2**31:
                raise DataError(f"{file.shown} has {file.size} bytes: a value in a column can have at most 2 GB")
        return pa.array([file.read_raw() for file in files], field.type)


def together(files: Sequence[Placed], sizes: Sequence[float]) -> Iterator[Sequence[Placed]]:
    """Groups files into fragments: more than one file each, but not all files in one."""
    start, taken = 0, 0.0
    for index, size in enumerate(sizes):
        if index > start and (index - start >= _FRAGMENT_FILES or taken + size > _FRAGMENT_BYTES):
            yield files[start:index]
            start, taken = index, 0.0
        taken += size
    if start < len(files):
        yield files[start:]
