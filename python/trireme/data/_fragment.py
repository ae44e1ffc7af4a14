"""The parts of datasets: fragments, their sources, and the operations on their batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from trireme.data._dataset import Dataset


class DataError(RuntimeError):
    """The data is invalid, or a function that was applied to it failed."""


class Fragment(ABC):
    """The unit in which a dataset is read: a row group, a file, a slice of a table.

    Picklable: workers read the fragments that the driver has listed. Always the same rows in the same order.

    name: for messages, "part-0.parquet, row group 3". rows: the exact number; None: unknown until it is read.
    size_bytes: an estimate of the memory that the rows take; None: unknown.
    """

    name: str
    rows: int | None
    size_bytes: int | None
    decoding_bytes: int = 0  # memory for reading, in addition to the rows; 0: unknown
    remote: bool = False  # reading may fail temporarily
    costly: bool = False  # decoding a row is slower than seeking it: rows are divided among workers one by one
    # Changes when the data changes: for example the size and modification time of a file.
    version: str = ""

    @abstractmethod
    def open(self, columns: Sequence[str] | None = None, row: int = 0) -> tuple[pa.RecordBatchReader, int]:
        """A reader, and its first row: `row`, or an earlier one if that is cheaper.

        Called from several threads. If possible, the reader decodes without the interpreter's lock.
        """

    @property
    def functions(self) -> list[tuple[FunctionOp, ...]]:
        """The user functions that reading it calls, those together that run together."""
        return []

    @property
    def has_functions(self) -> bool:
        return bool(self.functions)


class BatchFragment(Fragment):
    """A fragment that is computed: later batches may have a wider type than the first."""

    @abstractmethod
    def batches(self, columns: Sequence[str] | None = None, row: int = 0) -> tuple[Iterator[pa.RecordBatch], int]:
        """Its rows from `row` on, and the first row: `row`, or an earlier one."""

    def open(self, columns: Sequence[str] | None = None, row: int = 0) -> tuple[pa.RecordBatchReader, int]:
        import pyarrow as pa

        from trireme.data._promotion import one_table

        batches, first = self.batches(columns, row)
        table = one_table(batches, self.name)
        return (pa.schema([]).empty_table() if table is None else table).to_reader(), first


class Source(ABC):
    """Provides a dataset's fragments. Lists and reads files only on demand."""

    name: str  # "read_parquet"
    own_columns = True  # every fragment has the columns of schema(), under these names

    @abstractmethod
    def fragments(self) -> list[Fragment]:
        """Always the same list. Errors name the file."""

    @abstractmethod
    def schema(self) -> pa.Schema: ...

    def files(self) -> list[str]:
        return []

    def with_filter(self, expression: Any) -> Source | None:
        """A source without the rows (and row groups) that a pyarrow.compute expression excludes; None: the caller must
        filter."""
        return None

    def dataset(self) -> Dataset:
        from trireme.data._dataset import Dataset  # whose methods use all modules

        return Dataset(self)


@dataclass(frozen=True)
class Where:
    """The origin of a batch, for errors."""

    fragment: str
    row: int = 0  # the first row of the batch, in the fragment


class Op(ABC):
    """An operation on the batches of a fragment. Picklable."""

    name: str  # "map_batches(tokenize)"
    # Whether it returns one row for each input row, in the same order; None: determined by a trial call.
    keeps_rows: bool | None = True

    @abstractmethod
    def __call__(self, batches: Iterator[pa.RecordBatch], where: Where) -> Iterator[pa.RecordBatch]: ...

    def schema(self, schema: pa.Schema) -> pa.Schema | None:
        """The schema of the output; None: determined by a trial call."""
        return None


class FunctionOp(Op):
    """A user function. Consecutive ones run together, in one process."""

    concurrency: int | None = None
