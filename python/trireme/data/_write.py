"""Writes datasets to files in a folder, in the order of the rows, with a few batches in memory."""

from __future__ import annotations

import os
import posixpath
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from typing import Any, TypedDict, Unpack

import pyarrow as pa
import pyarrow.fs as fs

from trireme import _storage
from trireme._core import count_of
from trireme.data._column_ops import require_columns
from trireme.data._cut import exact_batches
from trireme.data._derived import name_of, ordered, stream_of
from trireme.data._file_writers import (
    CsvWriter,
    JsonLinesWriter,
    NumpyWriter,
    ParquetWriter,
    Writer,
    check_csv_options,
    check_options,
    check_parquet_options,
)
from trireme.data._methods import DatasetMethods, is_whole
from trireme.data._plan import Plan
from trireme.data._promotion import conform, fixed, widened

# A file is closed when it is this large in memory; `min_rows_per_file` sets the limit in rows.
_FILE_BYTES = 512 << 20
_MODES = ("append", "overwrite", "ignore", "error")


_FILES_OF_A_PART = 1_000_000  # at most


class FilenameProvider:
    """Names the files of write_parquet(..., filename_provider=...) and similar methods: override one of the methods.

    dataset_uuid: a prefix of the names. file_format: their extension, without the dot.
    """

    def __init__(self, dataset_uuid: str | None = None, file_format: str | None = None) -> None:
        self.dataset_uuid, self.file_format = dataset_uuid, file_format

    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        """The name of a file. task_index: its number, different for all files of a write."""
        return self._name(f"{write_uuid}_{task_index:06}")

    def get_filename_for_block(self, block: pa.Table, write_uuid: str, task_index: int, block_index: int) -> str:
        """The name of a file. block: its first rows; task_index: with concurrency, the part; block_index: the file."""
        return self.get_filename_for_task(write_uuid, task_index * _FILES_OF_A_PART + block_index)

    def get_filename_for_row(
        self, row: Mapping[str, Any], write_uuid: str, task_index: int, block_index: int, row_index: int
    ) -> str:
        """The name of a file with one row, for formats such as images."""
        return self._name(f"{write_uuid}_{task_index:06}_{block_index:06}_{row_index:06}")

    def _name(self, stem: str) -> str:
        # Set by __init__, which a derived class may not call.
        prefix, suffix = getattr(self, "dataset_uuid", None), getattr(self, "file_format", None)
        return (f"{prefix}_" if prefix else "") + stem + (f".{suffix}" if suffix else "")


class FileOptions(TypedDict, total=False):
    """The arguments of all methods that write files.

    mode: if the folder already has files: "append", "overwrite", "ignore" (write nothing) or "error".
    min_rows_per_file: a file is closed when it has this many rows; num_rows_per_file: exactly this many, except in the
    last. concurrency: the number of files that are written at the same time.
    """

    filesystem: Any
    mode: Any
    min_rows_per_file: int | None
    num_rows_per_file: int | None
    filename_provider: FilenameProvider | None
    concurrency: int | None
    arrow_open_stream_args: Mapping[str, Any] | None
    ray_remote_args: Any  # has no effect
    try_create_dir: bool  # has no effect: local folders are always created


class WriteMethods(DatasetMethods):
    def write_parquet(
        self,
        path: str | os.PathLike[str],
        *,
        partition_cols: Sequence[str] | None = None,
        arrow_parquet_args_fn: Callable[[], Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        """Writes files to a folder, local or in an object store ("s3://..."). File names sort in the dataset's order.

        partition_cols: write to the folders x=1/, x=2/, ... Other arguments: filesystem, mode, min_rows_per_file,
        num_rows_per_file, filename_provider, concurrency (see FileOptions), and those of pyarrow.parquet.ParquetWriter.
        """
        target = Target("write_parquet", path, ".parquet", options, True)
        formats = {**(arrow_parquet_args_fn() if arrow_parquet_args_fn else {}), **target.others}
        check_parquet_options(formats)
        if partition_cols:
            _write_partitioned(self._plan, target, list(partition_cols), formats)
        else:
            write_files(self._plan, target, lambda sink, schema: ParquetWriter(sink, schema, formats))

    def write_csv(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Writes files to a folder. Takes FileOptions, and those of pyarrow.csv.WriteOptions, or write_options=.

        Text is quoted and null is not, so that read_csv() distinguishes null from empty text.
        """
        target = Target("write_csv", path, ".csv", options, True)
        check_csv_options(target.others)
        write_files(self._plan, target, lambda sink, schema: CsvWriter(sink, schema, target.others))

    def write_json(self, path: str | os.PathLike[str], **options: Unpack[FileOptions]) -> None:
        """Writes files to a folder, with one JSON object per line."""
        target = Target("write_json", path, ".json", options)
        write_files(self._plan, target, lambda sink, schema: JsonLinesWriter(sink))

    def write_numpy(self, path: str | os.PathLike[str], *, column: str, **options: Unpack[FileOptions]) -> None:
        """Writes one column to a folder, as .npy files."""
        require_columns([column], self._plan.schema(), "write_numpy(column)")
        target = Target("write_numpy", path, ".npy", options)
        write_files(self._plan, target, lambda sink, schema: NumpyWriter(sink, column, schema))


class Target:
    """The folder and the FileOptions of a write. Files get their final names when they are complete.

    others: the options that are not FileOptions, for formats that have some.
    """

    def __init__(
        self, method: str, path: str | os.PathLike[str], suffix: str, options: Mapping[str, Any], own: bool = False
    ) -> None:
        self.method = method
        self.others = {name: value for name, value in options.items() if name not in FileOptions.__annotations__}
        if not own:
            check_options(method, self.others, set(FileOptions.__annotations__))
        self.location = _storage.resolve(path, options.get("filesystem"))
        self.filesystem = self.location.filesystem or fs.LocalFileSystem()
        self.min_rows: int | None = self._number("min_rows_per_file", options)
        self.num_rows: int | None = self._number("num_rows_per_file", options)
        if self.min_rows and self.num_rows:
            raise ValueError(f"{method}: set either min_rows_per_file or num_rows_per_file")
        self.concurrency: int = self._number("concurrency", options) or 1
        self.provider: FilenameProvider | None = options.get("filename_provider")
        if self.provider is not None and not hasattr(self.provider, "get_filename_for_block"):
            raise TypeError(f"{method}(filename_provider={self.provider!r}): expected a FilenameProvider")
        self._stream_args = dict(options.get("arrow_open_stream_args") or {})
        mode = options.get("mode", "append")
        self._mode = str(getattr(mode, "value", mode)).lower()
        if self._mode not in _MODES:
            raise ValueError(f"mode={self._mode!r}: expected one of {', '.join(map(repr, _MODES))}")
        self.uuid = os.urandom(4).hex()
        self._suffix = suffix

    def prepare(self, inputs: Sequence[str]) -> bool:
        """Whether there is anything to write."""
        selector = fs.FileSelector(self.location.path, recursive=True, allow_not_found=True)
        there = [info.path for info in self.filesystem.get_file_info(selector) if info.type == fs.FileType.File]
        if there and self._mode == "error":
            raise FileExistsError(
                f"{self.location} has {count_of(len(there), 'file')}; mode='overwrite' replaces them, "
                "'append' adds to them"
            )
        if there and self._mode == "ignore":
            return False
        if there and self._mode == "overwrite":
            below = str(self.location).rstrip("/") + "/"
            read = next((file for file in inputs if file.startswith(below)), None)
            if read is not None:
                raise ValueError(f"mode='overwrite': {read} would be overwritten while it is read; use another folder")
            self.filesystem.delete_dir_contents(self.location.path)
        if self.location.local:
            os.makedirs(self.location.path, exist_ok=True)
        return True

    def template(self) -> str:
        return f"{self.uuid}-{{i}}{self._suffix}"

    def create(self, part: int, index: int, head: pa.RecordBatch | None) -> _File:
        if self.provider is not None:
            block = pa.table({}) if head is None else pa.Table.from_batches([head])
            name = str(self.provider.get_filename_for_block(block, self.uuid, part, index))
        else:
            parts = f"{part:06}-" if self.concurrency > 1 else ""
            name = f"{self.uuid}-{parts}{index:06}{self._suffix}"
        return self.open(name)

    def open(self, name: str) -> _File:
        return _File(self.filesystem, self.location.path, name, self.location.local, self._stream_args)

    def _number(self, name: str, options: Mapping[str, Any]) -> int | None:
        value = options.get(name)
        if value is not None and (not is_whole(value) or value < 1):
            raise ValueError(f"{self.method}({name}={value!r}): expected an integer, 1 or more")
        return value


class _File:
    def __init__(self, filesystem: Any, folder: str, name: str, hidden: bool, stream_args: Mapping[str, Any]) -> None:
        self._filesystem = filesystem
        self._final = posixpath.join(folder, name)
        self._path = posixpath.join(folder, f".{name}") if hidden else self._final
        self.sink = filesystem.open_output_stream(self._path, **stream_args)

    def done(self) -> None:
        self.sink.close()
        if self._path != self._final:
            self._filesystem.move(self._path, self._final)

    def discard(self) -> None:
        """Deletes it, also after done()."""
        with suppress(Exception):
            self.sink.close()
        for path in {self._path, self._final}:
            with suppress(Exception):
                self._filesystem.delete_file(path)


def write_files(plan: Plan, target: Target, make: Callable[[Any, pa.Schema], Writer]) -> None:
    """make: a writer for an open file and the schema of the rows."""
    if not target.prepare(plan.source.files()):
        return
    common = _Common()
    while True:
        run = _Run(plan, target, make, common)
        try:
            run.write()
            return
        except _Widened:  # the files before it have another type: write them again
            run.discard()


def _parts(plan: Plan, count: int) -> list[Iterator[pa.RecordBatch]]:
    """The rows in order, in parts of about the same number of fragments."""
    pieces = plan.in_stream()
    edges = [len(pieces) * part // count for part in range(count + 1)]
    parts = [pieces[begin:end] for begin, end in pairwise(edges) if begin < end]
    return [stream_of(plan, pieces=part) for part in parts] or [iter(())]


class _Widened(Exception):
    """A batch needs a wider schema than that of the files."""


class _Common:
    """The schema of all files of a write, which functions may widen."""

    def __init__(self) -> None:
        self.schema: pa.Schema | None = None
        self._lock = threading.Lock()

    def conformed(self, batches: Iterator[pa.RecordBatch], where: str) -> Iterator[pa.RecordBatch]:
        row, mine = 0, self.schema
        for batch in batches:
            with self._lock:
                self.schema = (
                    batch.schema if self.schema is None else widened(self.schema, batch.schema, where, batch, row)
                )
                mine = self.schema if mine is None else mine
                if self.schema is not mine:
                    raise _Widened
            yield conform(batch, mine, where, row)
            row += batch.num_rows


class _Run:
    """One attempt to write all files."""

    def __init__(self, plan: Plan, target: Target, make: Callable[[Any, pa.Schema], Writer], common: _Common) -> None:
        self._plan = plan
        self._target = target
        self._make = make
        self._common = common
        self._files: list[_File] = []

    def write(self) -> None:
        plan, workers = self._plan, self._target.concurrency
        if workers == 1 or self._target.num_rows is not None:
            self._write_part(0, stream_of(plan))
            return
        parts = _parts(ordered(plan), workers)
        with ThreadPoolExecutor(workers, "trireme-write") as threads:
            jobs = [threads.submit(self._write_part, index, part) for index, part in enumerate(parts)]
            for job in jobs:
                job.result()

    def discard(self) -> None:
        for file in self._files:
            file.discard()

    def _write_part(self, part: int, batches: Iterator[pa.RecordBatch]) -> None:
        target = self._target
        batches = self._common.conformed(batches, name_of(self._plan))
        waiting = Peeking(batches if target.num_rows is None else exact_batches(batches, target.num_rows))
        schema = waiting.head.schema if waiting.more() else self._common.schema or self._plan.schema()
        index = 0
        more = True
        while more:
            file = target.create(part, index, waiting.head)
            writer = None
            try:
                writer = self._make(file.sink, schema)
                more = _fill(writer, waiting, target.num_rows or target.min_rows)
                writer.close()
                file.done()
                self._files.append(file)
            except BaseException:
                if writer is not None:
                    with suppress(Exception):
                        writer.close()
                file.discard()
                raise
            index += 1


def _fill(writer: Writer, batches: Peeking, min_rows: int | None) -> bool:
    """Whether another file must follow."""
    rows = size = 0
    for batch in batches:
        writer.add(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if (rows >= min_rows) if min_rows is not None else (size >= _FILE_BYTES):
            return batches.more()
    return False


class Peeking:
    """An iterator of batches with one batch of lookahead."""

    def __init__(self, rest: Iterator[pa.RecordBatch]) -> None:
        self.head: Any = None
        self._rest = rest

    def __iter__(self) -> Peeking:
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


def _write_partitioned(plan: Plan, target: Target, columns: list[str], options: Mapping[str, Any]) -> None:
    import pyarrow.dataset as ds

    if target.min_rows or target.provider:
        raise ValueError("write_parquet: partition_cols excludes min_rows_per_file and filename_provider")
    schema = plan.schema()
    require_columns(columns, schema, "write_parquet(partition_cols)")
    if not target.prepare(plan.source.files()):
        return
    kind = ds.ParquetFileFormat()
    options = dict(options)
    rows = options.pop("row_group_size", 1 << 20)
    ds.write_dataset(
        pa.RecordBatchReader.from_batches(schema, fixed(stream_of(plan), schema, name_of(plan))),
        target.location.path,
        basename_template=target.template(),
        format=kind,
        file_options=kind.make_write_options(**options),
        filesystem=target.filesystem,
        partitioning=ds.partitioning(pa.schema([schema.field(name) for name in columns]), flavor="hive"),
        existing_data_behavior="overwrite_or_ignore",
        max_rows_per_group=min(rows, target.num_rows or rows),
        max_rows_per_file=target.num_rows or 0,
        use_threads=False,
    )
