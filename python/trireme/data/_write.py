"""Writes datasets to files in a folder, in the order of the rows, with a few batches in memory."""

from __future__ import annotations

import json
import os
import posixpath
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as fs

from trireme import _storage
from trireme._core import count_of
from trireme.data._column_ops import require_columns
from trireme.data._derived import stream_of
from trireme.data._methods import DatasetMethods, is_whole
from trireme.data._plan import Plan
from trireme.data._tensors import numpy_of, rows_of

# A file is closed when it is this large in memory; `min_rows_per_file` sets the limit in rows.
_FILE_BYTES = 512 << 20
_ROW_GROUP_ROWS = 131_072
_ROW_GROUP_BYTES = 64 << 20
_MODES = ("append", "overwrite", "ignore", "error")


class WriteMethods(DatasetMethods):
    def write_parquet(
        self,
        path: str | os.PathLike[str],
        *,
        partition_cols: Sequence[str] | None = None,
        filesystem: Any = None,
        arrow_parquet_args_fn: Callable[[], Mapping[str, Any]] | None = None,
        min_rows_per_file: int | None = None,
        mode: Any = "append",
        **arrow_parquet_args: Any,
    ) -> None:
        """Writes files to a folder, local or in an object store ("s3://..."). File names sort in the dataset's order.

        partition_cols: write to the folders x=1/, x=2/, ... mode: if the folder already has files: "append",
        "overwrite", "ignore" (write nothing) or "error". Other arguments: those of pyarrow.parquet.ParquetWriter.
        """
        options = {**(arrow_parquet_args_fn() if arrow_parquet_args_fn else {}), **arrow_parquet_args}
        if partition_cols:
            _write_partitioned(self._plan, _Folder(path, filesystem, ".parquet"), list(partition_cols), options, mode)
            return
        folder = _Folder(path, filesystem, ".parquet")
        _write(self._plan, folder, lambda sink, schema: _Parquet(sink, schema, options), min_rows_per_file, mode)

    def write_csv(
        self,
        path: str | os.PathLike[str],
        *,
        filesystem: Any = None,
        min_rows_per_file: int | None = None,
        mode: Any = "append",
        **arrow_csv_args: Any,
    ) -> None:
        """Writes files to a folder. Other arguments: those of pyarrow.csv.WriteOptions, or write_options=."""
        folder = _Folder(path, filesystem, ".csv")
        _write(self._plan, folder, lambda sink, schema: _Csv(sink, schema, arrow_csv_args), min_rows_per_file, mode)

    def write_json(
        self,
        path: str | os.PathLike[str],
        *,
        filesystem: Any = None,
        min_rows_per_file: int | None = None,
        mode: Any = "append",
    ) -> None:
        """Writes files to a folder, with one JSON object per line."""
        folder = _Folder(path, filesystem, ".json")
        _write(self._plan, folder, lambda sink, schema: _JsonLines(sink), min_rows_per_file, mode)

    def write_numpy(
        self,
        path: str | os.PathLike[str],
        *,
        column: str,
        filesystem: Any = None,
        min_rows_per_file: int | None = None,
        mode: Any = "append",
    ) -> None:
        """Writes one column to a folder, as .npy files."""
        require_columns([column], self._plan.schema(), "write_numpy(column)")
        folder = _Folder(path, filesystem, ".npy")
        _write(self._plan, folder, lambda sink, schema: _Numpy(sink, column, schema), min_rows_per_file, mode)


class _Folder:
    """The target folder. Files get their final names when they are complete."""

    def __init__(self, path: str | os.PathLike[str], filesystem: Any, suffix: str) -> None:
        self.location = _storage.resolve(path, filesystem)
        self.filesystem = self.location.filesystem or fs.LocalFileSystem()
        self._prefix = os.urandom(4).hex()
        self._suffix = suffix

    def prepare(self, mode: Any, inputs: Sequence[str]) -> bool:
        """Whether there is anything to write."""
        mode = str(getattr(mode, "value", mode)).lower()
        if mode not in _MODES:
            raise ValueError(f"mode={mode!r}: expected one of {', '.join(map(repr, _MODES))}")
        selector = fs.FileSelector(self.location.path, recursive=True, allow_not_found=True)
        there = [info.path for info in self.filesystem.get_file_info(selector) if info.type == fs.FileType.File]
        if there and mode == "error":
            raise FileExistsError(
                f"{self.location} has {count_of(len(there), 'file')}; mode='overwrite' replaces them, "
                "'append' adds to them"
            )
        if there and mode == "ignore":
            return False
        if there and mode == "overwrite":
            below = str(self.location).rstrip("/") + "/"
            read = next((file for file in inputs if file.startswith(below)), None)
            if read is not None:
                raise ValueError(f"mode='overwrite': {read} would be overwritten while it is read; use another folder")
            self.filesystem.delete_dir_contents(self.location.path)
        if self.location.local:
            os.makedirs(self.location.path, exist_ok=True)
        return True

    def template(self) -> str:
        return f"{self._prefix}-{{i}}{self._suffix}"

    def create(self, index: int) -> _File:
        name = f"{self._prefix}-{index:06}{self._suffix}"
        return _File(self.filesystem, self.location.path, name, hidden=self.location.local)


class _File:
    def __init__(self, filesystem: Any, folder: str, name: str, hidden: bool) -> None:
        self._filesystem = filesystem
        self._final = posixpath.join(folder, name)
        self._path = posixpath.join(folder, f".{name}") if hidden else self._final
        self.sink = filesystem.open_output_stream(self._path)

    def done(self) -> None:
        self.sink.close()
        if self._path != self._final:
            self._filesystem.move(self._path, self._final)

    def discard(self) -> None:
        with suppress(Exception):
            self.sink.close()
        with suppress(Exception):
            self._filesystem.delete_file(self._path)


class _Writer(ABC):
    @abstractmethod
    def add(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None:  # noqa: B027
        """Writes buffered rows."""


class _Parquet(_Writer):
    def __init__(self, sink: Any, schema: pa.Schema, options: Mapping[str, Any]) -> None:
        import pyarrow.parquet as pq

        options = dict(options)
        self._rows: int = options.pop("row_group_size", _ROW_GROUP_ROWS)
        self._schema = schema
        self._writer = pq.ParquetWriter(sink, schema, **options)
        self._held: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        rows = sum(held.num_rows for held in self._held)
        if rows >= self._rows or sum(held.nbytes for held in self._held) >= _ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, self._schema), row_group_size=self._rows)
            self._held = []


class _Csv(_Writer):
    def __init__(self, sink: Any, schema: pa.Schema, options: Mapping[str, Any]) -> None:
        from pyarrow import csv

        nested = [field for field in schema if pa.types.is_nested(field.type) or _is_tensor(field.type)]
        if nested:
            raise ValueError(
                f"write_csv: column {nested[0].name!r} is {nested[0].type}, which CSV cannot hold; "
                "drop it, or use write_parquet"
            )
        options = dict(options)
        chosen = options.pop("write_options", None) or csv.WriteOptions(**options)
        self._writer = csv.CSVWriter(sink, schema, write_options=chosen)

    def add(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class _JsonLines(_Writer):
    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def add(self, batch: pa.RecordBatch) -> None:
        for index, field in enumerate(batch.schema):
            if pa.types.is_floating(field.type):  # JSON has no NaN
                column = batch.column(index)
                finite = pc.if_else(pc.is_finite(column), column, pa.scalar(None, field.type))
                batch = batch.set_column(index, field.name, finite)
        lines = (json.dumps(row, default=_plain, ensure_ascii=False) for row in rows_of(batch))
        self._sink.write("".join(f"{line}\n" for line in lines).encode())


class _Numpy(_Writer):
    def __init__(self, sink: Any, column: str, schema: pa.Schema) -> None:
        self._sink = sink
        self._column = column
        self._parts: list[pa.Array] = []
        self._type = schema.field(column).type

    def add(self, batch: pa.RecordBatch) -> None:
        self._parts.append(batch.column(self._column))

    def close(self) -> None:
        values = numpy_of(pa.chunked_array(self._parts, self._type), self._column)
        if values.dtype == object and len({np.shape(value) for value in values}) == 1:
            values = np.stack(list(values))
        if values.dtype == object:
            raise ValueError(
                f"write_numpy: column {self._column!r} is {self._type}; .npy files hold numbers of one shape"
            )
        np.save(_Stream(self._sink), values, allow_pickle=False)


class _Stream:
    """Adapts an Arrow stream to numpy, which needs a write() method."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def write(self, data: bytes) -> int:
        self._sink.write(data)
        return len(data)


def _write(
    plan: Plan, folder: _Folder, make: Callable[[Any, pa.Schema], _Writer], min_rows: int | None, mode: Any
) -> None:
    if min_rows is not None and (not is_whole(min_rows) or min_rows < 1):
        raise ValueError(f"min_rows_per_file={min_rows!r}: expected a number of rows, 1 or more")
    if not folder.prepare(mode, plan.source.files()):
        return
    batches = stream_of(plan)
    waiting = _Peeking(batches)
    schema = waiting.head.schema if waiting.more() else plan.schema()
    index = 0
    more = True
    while more:
        file = folder.create(index)
        writer = None
        try:
            writer = make(file.sink, schema)
            more = _fill(writer, waiting, min_rows)
            writer.close()
            file.done()
        except BaseException:
            if writer is not None:
                with suppress(Exception):
                    writer.close()
            file.discard()
            raise
        index += 1


def _fill(writer: _Writer, batches: _Peeking, min_rows: int | None) -> bool:
    """Whether another file must follow."""
    rows = size = 0
    for batch in batches:
        writer.add(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if (rows >= min_rows) if min_rows is not None else (size >= _FILE_BYTES):
            return batches.more()
    return False


class _Peeking:
    """An iterator of batches with one batch of lookahead."""

    def __init__(self, rest: Iterator[pa.RecordBatch]) -> None:
        self.head: Any = None
        self._rest = rest

    def __iter__(self) -> _Peeking:
        return self

    def __next__(self) -> pa.RecordBatch:
        if not self.more():
            raise StopIteration
        head, self.head = self.head, None
        return head

    def more(self) -> bool:
        if self.head is None:
            self.head = next(self._rest, None)
        return self.head is not None


def _write_partitioned(plan: Plan, folder: _Folder, columns: list[str], options: Mapping[str, Any], mode: Any) -> None:
    import pyarrow.dataset as ds

    schema = plan.schema()
    require_columns(columns, schema, "write_parquet(partition_cols)")
    if not folder.prepare(mode, plan.source.files()):
        return
    kind = ds.ParquetFileFormat()
    ds.write_dataset(
        pa.RecordBatchReader.from_batches(schema, stream_of(plan)),
        folder.location.path,
        basename_template=folder.template(),
        format=kind,
        file_options=kind.make_write_options(**options),
        filesystem=folder.filesystem,
        partitioning=ds.partitioning(pa.schema([schema.field(name) for name in columns]), flavor="hive"),
        existing_data_behavior="overwrite_or_ignore",
        use_threads=False,
    )


def _is_tensor(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType)


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, bytes):
        raise TypeError("JSON cannot hold bytes; decode or drop the column, or use write_parquet")
    return str(value)
