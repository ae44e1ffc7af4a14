"""What datasets are made of: fragments, where they come from, and what is done to their batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


class DataError(RuntimeError):
    """Something is wrong with the data, or with a function that was applied to it."""


class Fragment(ABC):
    """A part of a dataset that is read as a whole or not at all: a row group, a file, a slice of a table.

    Picklable: workers read the fragments that the driver has found. The same rows in the same order every time.

    name: for people, "part-0.parquet, row group 3". rows: exactly; None where only reading tells.
    size_bytes: about what the rows take in memory; None where nobody knows.
    """

    name: str
    rows: int | None
    size_bytes: int | None
    decoding_bytes: int = 0  # what it takes while it is read, beside the rows; 0: nobody knows
    remote: bool = False  # reading may fail for a while and work again
    costly: bool = False  # its rows take longer to make than to find: they are divided among workers one by one
    # What changes when the data does: size and modification time of a file, for example.
    version: str = ""

    @abstractmethod
    def open(self, columns: Sequence[str] | None = None, row: int = 0) -> tuple[pa.RecordBatchReader, int]:
        """A reader, and the row that it begins with: `row`, or one before it where that is cheaper.

        Called from several threads. Where it can, the reader decodes without the interpreter's lock.
        """


class Source(ABC):
    """Where a dataset's fragments come from. Nothing is read or listed before it is asked for."""

    name: str  # "read_parquet"

    @abstractmethod
    def fragments(self) -> list[Fragment]:
        """The same list every time. Raises what is wrong with the files, named."""

    @abstractmethod
    def schema(self) -> pa.Schema: ...

    def files(self) -> list[str]:
        return []

    def with_columns(self, columns: Sequence[str]) -> Source | None:
        """The same with fewer columns, in this order, where that saves reading; None: somebody else must drop them."""
        return None

    def with_filter(self, expression: Any) -> Source | None:
        """Without the rows (and row groups) that a pyarrow.compute expression excludes; None: filter what is read."""
        return None


@dataclass(frozen=True)
class Where:
    """Where a batch comes from, for errors."""

    fragment: str
    row: int = 0  # of the fragment, the first of what is being worked on


class Op(ABC):
    """Something that is done to every fragment's batches on their way. Picklable."""

    name: str  # "map_batches(tokenize)"
    # Whether one row comes out for each that goes in, in its place; None: found out by trying.
    keeps_rows: bool | None = True

    @abstractmethod
    def __call__(self, batches: Iterator[pa.RecordBatch], where: Where) -> Iterator[pa.RecordBatch]: ...

    def schema(self, schema: pa.Schema) -> pa.Schema | None:
        """Of what comes out; None: found out by trying."""
        return None


class FunctionOp(Op):
    """A function of the user. Those next to each other are run together, in one process."""

    concurrency: int | None = None
