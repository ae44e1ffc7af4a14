"""Targets of rows that users write: Datasink, write_datasink(), and sinks that write files. Names as in Ray Data."""

from __future__ import annotations

import enum
import posixpath
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from trireme import _core
from trireme.data._column_ops import one_batch
from trireme.data._datasource import batches_of
from trireme.data._derived import stream_of
from trireme.data._formats import in_format
from trireme.data._tensors import rows_of
from trireme.data._write import Peeking, Target

if TYPE_CHECKING:
    from trireme.data._plan import Plan

# The rows of a call of write(), unless the sink sets min_rows_per_write.
_WRITE_BYTES = 128 << 20

Returned = TypeVar("Returned")


class SaveMode(enum.Enum):
    """What write_*(mode=...) does if the folder has files already."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    IGNORE = "ignore"
    ERROR = "error"


@dataclass(frozen=True)
class TaskContext:
    """task_idx: the number of the call of write(). Rows are passed in the order of the dataset."""

    task_idx: int
    op_name: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class WriteResult(Generic[Returned]):
    """What was written. write_returns: the results of all calls of write()."""

    num_rows: int
    size_bytes: int
    write_returns: list[Returned]


class Datasink(Generic[Returned]):
    """A target of rows. Subclasses implement write(). Pass an instance to Dataset.write_datasink()."""

    def get_name(self) -> str:
        return type(self).__name__.removesuffix("Datasink").removesuffix("Sink") or "Datasink"

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Called once, before write()."""

    @abstractmethod
    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> Returned:
        """Writes some rows: tables that are read while they are iterated over."""
        raise NotImplementedError(f"{type(self).__name__} must implement write(blocks, ctx)")

    def on_write_complete(self, write_result: WriteResult[Returned]) -> None:
        """Called once, after the last write()."""

    def on_write_failed(self, error: Exception) -> None:
        """Called if anything fails after on_write_start(). The error is raised afterwards."""

    @property
    def supports_distributed_writes(self) -> bool:
        """False: all rows are passed to one call of write()."""
        return True

    @property
    def min_rows_per_write(self) -> int | None:
        """The rows of each call of write(), except the last; None: about 128 MiB."""
        return None


class BlockAccessor:
    """A block in other forms, for BlockBasedFileDatasink.write_block_to_file()."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @classmethod
    def for_block(cls, block: Any) -> BlockAccessor:
        return cls(block if isinstance(block, pa.Table) else pa.Table.from_batches(batches_of(block)))

    def num_rows(self) -> int:
        return int(self._table.num_rows)

    def size_bytes(self) -> int:
        return int(self._table.nbytes)

    def schema(self) -> pa.Schema:
        return self._table.schema

    def column_names(self) -> list[str]:
        names: list[str] = self._table.column_names
        return names

    def to_arrow(self) -> pa.Table:
        return self._table

    def to_pandas(self) -> Any:
        return in_format((self._batch(), {}), "pandas")

    def to_numpy(self) -> dict[str, Any]:
        columns: dict[str, Any] = in_format((self._batch(), {}), "numpy")
        return columns

    def iter_rows(self, public_row_format: bool = True) -> Iterator[dict[str, Any]]:
        for batch in self._table.to_batches():
            yield from rows_of(batch)

    def _batch(self) -> pa.RecordBatch:
        return one_batch(self._table)


class _FileDatasink(Datasink[list[str]]):
    """Writes files to a folder. A file that is not complete is removed."""

    def __init__(
        self,
        path: Any,
        *,
        filesystem: Any = None,
        try_create_dir: bool = True,
        open_stream_args: Mapping[str, Any] | None = None,
        filename_provider: Any = None,
        dataset_uuid: str | None = None,
        file_format: str | None = None,
        mode: Any = "append",
    ) -> None:
        self.path = path
        self.file_format = file_format
        self.filename_provider = filename_provider
        self._suffix = f".{file_format}" if file_format else ""
        options = {"filesystem": filesystem, "arrow_open_stream_args": open_stream_args, "mode": mode}
        self._target = Target(self.get_name(), path, self._suffix, options)
        self._uuid = dataset_uuid or self._target.uuid
        self._writes = True

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        self._writes = self._target.prepare(())

    def _write_file(self, name: str, fill: Callable[[Any], None]) -> str:
        file = self._target.open(name)
        try:
            fill(file.sink)
            file.done()
        except BaseException:
            file.discard()
            raise
        return posixpath.join(self._target.location.path, name)


class RowBasedFileDatasink(_FileDatasink):
    """One file per row. Subclasses implement write_row_to_file()."""

    @abstractmethod
    def write_row_to_file(self, row: dict[str, Any], file: pa.NativeFile) -> None:
        raise NotImplementedError(f"{type(self).__name__} must implement write_row_to_file(row, file)")

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> list[str]:
        if not self._writes:
            return []
        names = []
        for block_index, block in enumerate(blocks):
            for row_index, row in enumerate(BlockAccessor(block).iter_rows()):
                name = self._name(row, ctx.task_idx, block_index, row_index)
                names.append(self._write_file(name, lambda file, row=row: self.write_row_to_file(row, file)))  # type: ignore[misc]
        return names

    def _name(self, row: dict[str, Any], task: int, block: int, index: int) -> str:
        if self.filename_provider is not None:
            return str(self.filename_provider.get_filename_for_row(row, self._uuid, task, block, index))
        return f"{self._uuid}-{task:06}-{block:06}-{index:06}{self._suffix}"


class BlockBasedFileDatasink(_FileDatasink):
    """One file per call of write(). Subclasses implement write_block_to_file()."""

    def __init__(self, path: Any, *, min_rows_per_file: int | None = None, **options: Any) -> None:
        super().__init__(path, **options)
        if min_rows_per_file is not None and (not isinstance(min_rows_per_file, int) or min_rows_per_file < 1):
            raise _core.ConfigError(f"min_rows_per_file = {min_rows_per_file!r}: expected a number of rows, 1 or more")
        self._min_rows_per_file = min_rows_per_file

    @abstractmethod
    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        raise NotImplementedError(f"{type(self).__name__} must implement write_block_to_file(block, file)")

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> list[str]:
        tables = list(blocks) if self._writes else []
        if not tables:
            return []
        whole = BlockAccessor(pa.concat_tables(tables))
        if self.filename_provider is not None:
            name = str(self.filename_provider.get_filename_for_block(whole.to_arrow(), self._uuid, ctx.task_idx, 0))
        else:
            name = f"{self._uuid}-{ctx.task_idx:06}{self._suffix}"
        return [self._write_file(name, lambda file: self.write_block_to_file(whole, file))]

    @property
    def min_rows_per_write(self) -> int | None:
        return self._min_rows_per_file


def write_to(sink: Datasink[Any], plan: Plan) -> None:
    """Passes all rows to the sink, in order, in this process."""
    if not isinstance(sink, Datasink):
        raise _core.ConfigError(f"write_datasink: expected a Datasink, got {type(sink).__name__}")
    schema = plan.schema()
    sink.on_write_start(schema)
    try:
        blocks = _Blocks(stream_of(plan), sink)
        returns: list[Any] = []
        while blocks.batches.more() or not returns:
            returns.append(sink.write(blocks, TaskContext(len(returns), sink.get_name())))
            blocks.finish()
        result = WriteResult(blocks.rows, blocks.size_bytes, returns)
    except Exception as error:
        sink.on_write_failed(error)
        raise
    sink.on_write_complete(result)


class _Blocks:
    """The tables of one call of write() after the other."""

    def __init__(self, batches: Iterator[pa.RecordBatch], sink: Datasink[Any]) -> None:
        self.batches = Peeking(batches)
        self._min_rows = sink.min_rows_per_write
        self._all = not sink.supports_distributed_writes
        self._current = self._call()
        self.rows = 0
        self.size_bytes = 0

    def __iter__(self) -> Iterator[pa.Table]:
        return self._current

    def finish(self) -> None:
        """Skips the rows that write() has not read, and starts the next call."""
        for _ in self._current:
            pass
        self._current = self._call()

    def _call(self) -> Iterator[pa.Table]:
        rows = size = 0
        for head in self.batches:
            if self._min_rows is not None and not self._all and rows + head.num_rows > self._min_rows:
                keep = self._min_rows - rows
                head, self.batches.head = head.slice(0, keep), head.slice(keep)
            rows += head.num_rows
            size += head.nbytes
            self.rows += head.num_rows
            self.size_bytes += head.nbytes
            yield pa.Table.from_batches([head])
            if not self._all and (rows >= self._min_rows if self._min_rows is not None else size >= _WRITE_BYTES):
                return
