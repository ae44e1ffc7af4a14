"""Slices of fragments: all or some rows of a fragment, with the operations to apply to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from trireme._core import count_of
from trireme.data._column_ops import SelectColumns
from trireme.data._fragment import BatchFragment, DataError, Fragment, FunctionOp, Op, Where

if TYPE_CHECKING:
    import pyarrow as pa


class Count:
    """The number of rows, once known. Shared by slices that differ only in their columns."""

    def __init__(self, rows: int | None = None, size_bytes: int | None = None) -> None:
        self.rows = rows
        self.size_bytes = size_bytes  # of the counted rows; None: unknown


class FragmentSlice(BatchFragment):
    """Rows [start, stop) of a fragment, and the ops that follow.

    If the ops keep rows, a slice of a slice is a slice of the same fragment: a split before a map and a split after it
    read the same rows and call the function on the same batches.
    """

    def __init__(
        self,
        base: Fragment,
        ops: tuple[Op, ...] = (),
        start: int = 0,
        stop: int | None = None,
        count: Count | None = None,
    ) -> None:
        self.base = base
        self.ops = ops
        self.start = start
        self.stop = stop
        self.decoding_bytes = base.decoding_bytes
        self.remote = base.remote
        self.costly = base.costly
        self.version = base.version
        self.name = (
            base.name if start == 0 and stop is None else f"{base.name}, rows {start}-{'' if stop is None else stop}"
        )
        self.count = count or Count(base.rows if start == 0 and stop is None else None)
        # The slice to read in order to count the rows.
        self.counted: FragmentSlice = self

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state["counted"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.counted = self

    @property
    def rows(self) -> int | None:  # type: ignore[override]
        return self.count.rows

    @property
    def size_bytes(self) -> int | None:  # type: ignore[override]
        if self.counted is self and self.count.size_bytes is not None:
            return self.count.size_bytes
        if self.base.size_bytes is None or not self.base.rows or self.rows is None:
            return self.base.size_bytes if self.base.rows == 0 or self.stop is None else None
        return self.base.size_bytes * self.rows // self.base.rows

    @property
    def keeps_rows(self) -> bool:
        return all(op.keeps_rows for op in self.ops)

    @property
    def functions(self) -> list[tuple[FunctionOp, ...]]:
        own = groupby(self.ops, lambda op: isinstance(op, FunctionOp))
        return [*self.base.functions, *(cast(Any, tuple(group)) for is_function, group in own if is_function)]

    def then(self, op: Op) -> FragmentSlice:
        """`op.keeps_rows` must be known."""
        if not op.keeps_rows:
            return FragmentSlice(self.base, (*self.ops, op), self.start, self.stop, Count())
        piece = FragmentSlice(self.base, _with(self.ops, op), self.start, self.stop, self.count)
        piece.counted = self.counted
        return piece

    def cut(self, start: int, stop: int) -> FragmentSlice:
        """The rows must exist."""
        if start == 0 and stop == self.rows:
            return self
        if self.keeps_rows:
            return FragmentSlice(self.base, self.ops, self.start + start, self.start + stop, Count(stop - start))
        return FragmentSlice(self, (), start, stop, Count(stop - start))

    def batches(self, columns: Sequence[str] | None = None, row: int = 0) -> tuple[Iterator[pa.RecordBatch], int]:
        """Its rows from `row` on, and the first row: `row`, or an earlier one."""
        first = self._begin(row)
        wanted, ops = self._pruned(columns)
        begin = self.start + first
        rows, found = read(self.base, wanted, begin)
        if self.start or self.stop is not None or (found < begin and self.has_functions):
            rows, found = rows_between(rows, found, begin, self.stop), begin
        return apply(ops, rows, Where(self.base.name, found)), found - self.start

    def reader(self, row: int = 0) -> tuple[pa.RecordBatchReader, int] | None:
        """The fragment's own reader, if no op is left to apply; otherwise None."""
        if self.start or self.stop is not None or isinstance(self.base, FragmentSlice):
            return None
        columns, ops = self._pruned(None)
        return self.base.open(columns, row) if len(ops) == 0 or (len(ops) == 1 and columns is not None) else None

    def identity(self) -> tuple[Any, ...]:
        """Equal for slices with equal rows, as far as is known without reading them."""
        base = self.base.identity() if isinstance(self.base, FragmentSlice) else (self.base.name, self.base.version)
        return base, self.start, self.stop, tuple(op.name for op in self.ops)

    def _begin(self, row: int) -> int:
        """The row to start at, so that functions always see `row` in the same batch."""
        if row == 0 or not self.keeps_rows:
            return 0
        functions = [op for op in self.ops if isinstance(op, FunctionOp)]
        if not functions:
            return row
        from trireme.data._cut import first_row

        return first_row(cast(Any, functions), row)

    def _pruned(self, columns: Sequence[str] | None) -> tuple[Sequence[str] | None, tuple[Op, ...]]:
        """The columns to request from the fragment, and the remaining ops."""
        ops = self.ops if columns is None else _with(self.ops, SelectColumns(columns))
        first = next((op for op in ops if not _any_columns(op)), None)
        return (first.columns if isinstance(first, SelectColumns) else None), ops


def function_processes(pieces: Iterable[Fragment]) -> int | None:
    """The most processes that call the functions of these fragments; 0: this process calls some of them; None: there
    are no functions."""
    chains = {chain for piece in pieces for chain in piece.functions}
    if not chains:
        return None
    from trireme.data._function_processes import processes_for

    counts = [processes_for(chain) for chain in chains]
    return max(counts) if all(counts) else 0


def _with(ops: tuple[Op, ...], op: Op) -> tuple[Op, ...]:
    """Of two consecutive selections only the second is needed."""
    last = ops[-1] if ops else None
    if isinstance(op, SelectColumns) and isinstance(last, SelectColumns) and {*op.columns} <= {*last.columns}:
        return (*ops[:-1], op)
    return (*ops, op)


def _any_columns(op: Op) -> bool:
    """Whether it returns the same rows regardless of which columns are read."""
    return getattr(op, "any_columns", False) is True


def read(fragment: Fragment, columns: Sequence[str] | None, row: int) -> tuple[Iterator[pa.RecordBatch], int]:
    """A fragment's batches, and their first row."""
    if isinstance(fragment, BatchFragment):
        return fragment.batches(columns, row)
    reader, first = fragment.open(columns, row)
    return iter(reader), first


def apply(ops: Iterable[Op], batches: Iterator[pa.RecordBatch], where: Where) -> Iterator[pa.RecordBatch]:
    """Consecutive functions run together: a batch is sent to their process once."""
    for is_function, group in groupby(ops, lambda op: isinstance(op, FunctionOp)):
        if is_function:
            from trireme.data._function_processes import run_functions

            batches = run_functions(cast(Any, tuple(group)), batches, where)
        else:
            for op in group:
                batches = op(batches, where)
    return batches


def rows_in(
    piece: FragmentSlice,
    at_most: int | None = None,
    columns: list[str] | None = None,
    tick: Callable[[], None] | None = None,
) -> int:
    """The number of rows, counted up to `at_most`. A complete count is kept.

    columns: the columns of the fragment to read for counting. tick: called periodically.
    """
    if piece.rows is None:
        counted = piece.counted
        plain = all(map(_any_columns, counted.ops)) and not isinstance(counted.base, FragmentSlice)
        rows, size = 0, 0
        batches, _ = counted.batches(columns if plain else None)
        for batch in batches:
            rows += batch.num_rows
            size += batch.nbytes
            if tick is not None:
                tick()
            if at_most is not None and rows >= at_most:
                return at_most
        piece.count.rows = rows
        if not plain:
            piece.count.size_bytes = size
    found = cast(int, piece.rows)
    return found if at_most is None else min(found, at_most)


def rows_between(
    batches: Iterator[pa.RecordBatch], first: int, begin: int, stop: int | None
) -> Iterator[pa.RecordBatch]:
    """first: the row that the batches begin with."""
    at = first
    for batch in batches:
        low = max(begin - at, 0)
        high = batch.num_rows if stop is None else min(stop - at, batch.num_rows)
        at += batch.num_rows
        if high > low:
            yield batch if (low, high) == (0, batch.num_rows) else batch.slice(low, high - low)
        if stop is not None and at >= stop:
            return


def checked(batches: Iterator[pa.RecordBatch], rows: int, name: str) -> Iterator[pa.RecordBatch]:
    """Raises unless there are exactly `rows` rows: the order of the data is computed from the counts."""
    seen = 0
    for batch in batches:
        seen += batch.num_rows
        yield batch
    if seen != rows:
        raise DataError(
            f"{name} has {count_of(seen, 'row')} now and had {rows} when it was counted: the file has changed, or a "
            "function returns a different number of rows each time. Functions must return the same rows for the same "
            "input; if a function adds or drops rows, use map_batches(..., udf_modifying_row_count=True)"
        )
