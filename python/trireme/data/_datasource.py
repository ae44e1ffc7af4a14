"""Sources of rows that users write: Datasource, ReadTask, read_datasource(). Names as in Ray Data."""

from __future__ import annotations

import contextlib
import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from trireme import _core
from trireme.data._blocks import skipped
from trireme.data._column_ops import batch_with
from trireme.data._file_source import (
    FileFragment,
    FileSource,
    ReadFilesOptions,
    check_others,
    dataset_of_files,
    listing_of,
)
from trireme.data._fragment import DataError, Fragment, Source
from trireme.data._memory import num_fragments, plain_table, rows_of_batch
from trireme.data._paths import File
from trireme.data._promotion import conform
from trireme.data._tensors import as_table

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

# The number of read tasks to ask for. Independent of the machine, so that a run resumes on any other.
_PARALLELISM = 64

# A table, a record batch, a DataFrame, a dict of arrays, or a list of rows (dicts).
Block = Any


@dataclass
class BlockMetadata:
    """What is known about the blocks of a ReadTask before it runs. num_rows=None: the task runs once to count them."""

    num_rows: int | None = None
    size_bytes: int | None = None
    schema: pa.Schema | None = None
    input_files: Sequence[str] | None = None
    exec_stats: Any = None


class ReadTask:
    """A part of a Datasource: a function that returns or yields blocks. Must return the same rows on every call.

    version: changes when the rows change, for example with the modification time of a file. If it differs when a run
    resumes in the middle of an epoch, a warning is printed.
    """

    def __init__(
        self,
        read_fn: Callable[[], Iterable[Block]],
        metadata: BlockMetadata,
        schema: pa.Schema | None = None,
        per_task_row_limit: int | None = None,
        *,
        version: str = "",
    ) -> None:
        if not callable(read_fn):
            raise _core.ConfigError(f"ReadTask: read_fn = {read_fn!r}: expected a function that returns blocks")
        self.read_fn = read_fn
        self.metadata = metadata
        self.schema = schema if schema is not None else metadata.schema
        self.per_task_row_limit = per_task_row_limit
        self.version = version

    @property
    def num_rows(self) -> int | None:
        rows, most = self.metadata.num_rows, self.per_task_row_limit
        return rows if rows is None or most is None else min(rows, most)

    def __call__(self) -> Iterator[Block]:
        left = self.per_task_row_limit
        for block in self.read_fn():
            if left is None:
                yield block
                continue
            for batch in batches_of(block):
                yield batch.slice(0, left)
                left -= min(left, batch.num_rows)
            if left == 0:
                return


class Datasource:
    """A source of rows. Subclasses implement get_read_tasks(). Pass an instance to read_datasource()."""

    def get_name(self) -> str:
        return type(self).__name__.removesuffix("Datasource") or "Datasource"

    def estimate_inmemory_data_size(self) -> int | None:
        """The bytes that all rows take in memory; None: unknown."""
        return None

    @abstractmethod
    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None) -> list[ReadTask]:
        """About `parallelism` tasks, always the same ones in the same order: workers find rows by task and row."""
        raise NotImplementedError(f"{type(self).__name__} must implement get_read_tasks(parallelism)")

    @property
    def supports_distributed_reads(self) -> bool:
        return True


class FileBasedDatasource(Datasource):
    """Files of a format of your own. Subclasses implement _read_stream(); a fragment is a file.

    Arguments are those of read_csv() and similar functions. `_FILE_EXTENSIONS` of the class is the default of
    file_extensions.
    """

    _FILE_EXTENSIONS: list[str] | None = None

    def __init__(self, paths: Any, **options: Unpack[ReadFilesOptions]) -> None:
        given = {name: value for name, value in options.items() if (name, value) != ("file_extensions", None)}
        reader = f"read_datasource({self.get_name()})"
        self._listing = listing_of(reader, paths, given, self._FILE_EXTENSIONS, "hive")
        self._shuffle = given.get("shuffle")
        self._on_bad_file: Any = given.get("on_bad_file", "raise")

    @abstractmethod
    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[Block]:
        """Yields the blocks of an open file, which is decompressed if its extension indicates compression."""
        raise NotImplementedError(f"{type(self).__name__} must implement _read_stream(f, path)")

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None) -> list[ReadTask]:
        return [
            ReadTask(
                lambda file=file: self._decode(file),  # type: ignore[misc]
                BlockMetadata(input_files=[file.shown]),
                None,
                per_task_row_limit,
                version=file.version,
            )
            for file in self._listing.files()
        ]

    def _decode(self, file: File) -> Iterator[Block]:
        with file.open_stream() as stream:
            yield from self._read_stream(stream, file.shown)


def read_datasource(
    datasource: Datasource, *, parallelism: int = -1, override_num_blocks: int | None = None, **others: Any
) -> Dataset:
    """The rows of a Datasource, in the order of its read tasks."""
    if not isinstance(datasource, Datasource):
        raise _core.ConfigError(f"read_datasource: expected a Datasource, got {type(datasource).__name__}")
    if isinstance(datasource, FileBasedDatasource):
        source = DecodedFiles(datasource._listing, datasource._on_bad_file, datasource._decode)
        check_others(source.name, others)
        return dataset_of_files(source, datasource._shuffle)
    check_others("read_datasource", others)
    return TaskSource(datasource, num_fragments(parallelism, override_num_blocks) or _PARALLELISM).dataset()


class TaskSource(Source):
    """The read tasks of a Datasource, listed on first use."""

    def __init__(self, datasource: Datasource, parallelism: int, name: str | None = None) -> None:
        self.name = name or f"read_datasource({datasource.get_name()})"
        self._datasource = datasource
        self._parallelism = parallelism
        self._tasks: list[ReadTask] | None = None
        self._schema: pa.Schema | None = None

    def fragments(self) -> list[Fragment]:
        tasks, schema = self._listed(), self.schema()
        total = self._datasource.estimate_inmemory_data_size()
        share = None if total is None else total // max(len(tasks), 1)
        return [
            TaskFragment(task, schema, f"{self.name}, task {index}", share)
            for index, task in enumerate(tasks)
            if task.num_rows != 0
        ]

    def schema(self) -> pa.Schema:
        if self._schema is None:
            given = next((task.schema for task in self._listed() if task.schema is not None), None)
            self._schema = given if given is not None else self._first_schema()
        return self._schema

    def files(self) -> list[str]:
        return [file for task in self._listed() for file in task.metadata.input_files or ()]

    def _listed(self) -> list[ReadTask]:
        if self._tasks is None:
            tasks = list(self._datasource.get_read_tasks(self._parallelism))
            for index, task in enumerate(tasks):
                if not isinstance(task, ReadTask):
                    raise DataError(
                        f"{self.name}: get_read_tasks() returned {type(task).__name__} at index {index}, expected a "
                        "ReadTask"
                    )
            self._tasks = tasks
        return self._tasks

    def _first_schema(self) -> pa.Schema:
        for index, task in enumerate(self._listed()):
            for batch in _read(task, f"{self.name}, task {index}"):
                if batch.num_columns:
                    return batch.schema
        return pa.schema([])


class TaskFragment(Fragment):
    def __init__(self, task: ReadTask, schema: pa.Schema, name: str, share: int | None) -> None:
        self._task = task
        self._schema = schema
        self.name = name
        self.rows = task.num_rows
        self.size_bytes = task.metadata.size_bytes if task.metadata.size_bytes is not None else share
        self.version = task.version

    def open(self, columns: Sequence[str] | None = None, row: int = 0) -> tuple[pa.RecordBatchReader, int]:
        names = self._schema.names if columns is None else list(columns)
        schema = pa.schema([self._schema.field(name) for name in names])
        batches = skipped(_read(self._task, self.name), row)
        return pa.RecordBatchReader.from_batches(schema, (self._as(batch, schema) for batch in batches)), row

    def _as(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        whole = conform(batch, self._schema, self.name)
        return batch_with([whole.column(name) for name in schema.names], schema, batch.num_rows)


class DecodedFragment(FileFragment):
    def _batches(self, columns: Sequence[str], row: int) -> Iterator[pa.RecordBatch]:
        with named(self._file.shown):
            yield from skipped(itertools.chain.from_iterable(map(batches_of, self._options(self._file))), row)


class DecodedFiles(FileSource):
    """Files that a function, the option, converts to blocks. Picklable if the function is."""

    _fragment = DecodedFragment

    def _infer(self, file: File) -> pa.Schema:
        with named(file.shown):
            for batch in itertools.chain.from_iterable(map(batches_of, self._options(file))):
                schema: pa.Schema = batch.schema
                return schema
        raise DataError(f"{file.shown} has no rows: the first file defines the columns")


def batches_of(block: Block) -> Iterator[pa.RecordBatch]:
    """Converts a block to record batches of moderate size."""
    given = as_table(block)
    if given is None:
        raise DataError(
            f"a block is {type(block).__name__}: expected a pyarrow Table or RecordBatch, a DataFrame, a dict of "
            "arrays or a list of dicts"
        )
    table = plain_table(given)
    yield from table.to_batches(max_chunksize=rows_of_batch(table.nbytes / max(table.num_rows, 1)))


def _read(task: ReadTask, name: str) -> Iterator[pa.RecordBatch]:
    with named(name):
        for block in task():
            yield from batches_of(block)


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    """Adds the part of the data to errors of a user's reader."""
    try:
        yield
    except DataError as error:
        if name in str(error):
            raise
        raise DataError(f"{name}: {error}") from error.__cause__ or error
    except (OSError, pa.ArrowException):
        raise
    except Exception as error:
        raise DataError(f"{name} raised {type(error).__name__}: {error}") from error
