"""Datasets in memory: tables, arrays, lists, and the numbers up to n."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trireme import _core
from trireme.data._column_ops import batch_with
from trireme.data._fragment import DataError, Fragment, Source
from trireme.data._promotion import common_schema, table_with
from trireme.data._shared_table import SharedTable
from trireme.data._tensors import array_of, batch_of, batch_of_rows, fixed_tensors, is_frame, plain_type

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

BATCH_ROWS = 65_536
BATCH_BYTES = 16 << 20
# Smaller tables are part of the pickle, which also works on other machines.
_INLINE_BYTES = 1 << 20
_FRAGMENT_ROWS = 131_072
# Tables of a few hundred rows are split, too, because functions may be slow on each row.
_FEW_FRAGMENTS = 12
_FEW_ROWS = 32
# Tables with smaller chunks are combined first.
_SMALL_CHUNK = 1024


def rows_of_batch(row_bytes: float, most: int = BATCH_ROWS) -> int:
    """The number of rows to read at once, so that wide rows do not take more memory than narrow ones."""
    return max(1, min(most, int(BATCH_BYTES / max(row_bytes, 1.0))))


class HeldTable:
    """A table of this process. Pickling moves it to shared memory, once; a small table is pickled itself."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._shared: SharedTable | None = None

    def __getstate__(self) -> SharedTable | bytes:
        if self._shared is None and self.table.nbytes > _INLINE_BYTES:
            self._shared = SharedTable.put(self.table)
            self.table = self._shared.table
        if self._shared is not None:
            return self._shared
        # Arrow's own pickle of a slice contains the complete table.
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table)
        content: bytes = sink.getvalue().to_pybytes()
        return content

    def __setstate__(self, state: SharedTable | bytes) -> None:
        self._shared = state if isinstance(state, SharedTable) else None
        self.table = state.table if isinstance(state, SharedTable) else pa.ipc.open_stream(state).read_all()


class TableFragment(Fragment):
    def __init__(self, held: HeldTable, start: int, rows: int, name: str) -> None:
        self._held = held
        self._start = start
        self.rows: int = rows
        self.name = f"{name}, rows {start} to {start + rows - 1}" if rows else name
        self.size_bytes: int = int(rows * held.table.nbytes / max(held.table.num_rows, 1))

    def open(self, columns: Sequence[str] | None = None, row: int = 0) -> tuple[pa.RecordBatchReader, int]:
        table = self._held.table.slice(self._start + row, self.rows - row)
        if columns is not None:
            table = table.select(list(columns))
        return table.to_reader(max_chunksize=rows_of_batch(self.size_bytes / max(self.rows, 1))), row


class TableSource(Source):
    """A table in memory, in slices."""

    def __init__(
        self, table: pa.Table, name: str, num_fragments: int | None = None, ends: Sequence[int] | None = None
    ) -> None:
        """ends: the end rows of the fragments; default: fragments of about equal size."""
        self.name = name
        self._ends = ends
        table = plain_table(table)
        if table.num_columns and table.column(0).num_chunks * _SMALL_CHUNK > max(table.num_rows, _FRAGMENT_ROWS):
            table = table.combine_chunks()
        self._held = HeldTable(table)
        self._num_fragments = num_fragments

    @property
    def table(self) -> pa.Table:
        return self._held.table

    def fragments(self) -> list[Fragment]:
        if self._ends is not None:
            edges = itertools.pairwise([0, *self._ends])
            return [TableFragment(self._held, start, end - start, self.name) for start, end in edges if end > start]
        row_bytes = self.table.nbytes / max(self.table.num_rows, 1)
        slices = _slices(self.table.num_rows, self._num_fragments, rows_of_batch(row_bytes, _FRAGMENT_ROWS))
        return [TableFragment(self._held, start, rows, self.name) for start, rows in slices]

    def schema(self) -> pa.Schema:
        return self.table.schema


class RangeFragment(Fragment):
    def __init__(self, start: int, rows: int, shape: tuple[int, ...] | None) -> None:
        self._start = start
        self._shape = shape
        self.rows: int = rows
        self.name = f"range, rows {start} to {start + rows - 1}"
        self._row_bytes = 8 * int(np.prod(shape or (1,), dtype=np.int64))
        self.size_bytes = rows * self._row_bytes

    def open(self, columns: Sequence[str] | None = None, row: int = 0) -> tuple[pa.RecordBatchReader, int]:
        schema = _range_schema(self._shape)
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        step = rows_of_batch(self._row_bytes)
        end = self._start + self.rows
        begins = builtins.range(self._start + row, end, step)
        batches = (self._batch(schema, begin, min(begin + step, end)) for begin in begins)
        return pa.RecordBatchReader.from_batches(schema, batches), row

    def _batch(self, schema: pa.Schema, begin: int, end: int) -> pa.RecordBatch:
        numbers: np.ndarray = np.arange(begin, end, dtype=np.int64)
        if self._shape is None:
            column = pa.array(numbers)
        else:
            ones = (1,) * len(self._shape)
            column = fixed_tensors(np.broadcast_to(numbers.reshape(-1, *ones), (len(numbers), *self._shape)))
        return batch_with([column for _ in schema], schema, len(numbers))


class RangeSource(Source):
    def __init__(self, rows: int, shape: tuple[int, ...] | None, num_fragments: int | None) -> None:
        self.name = "range" if shape is None else "range_tensor"
        self._rows = rows
        self._shape = shape
        self._num_fragments = num_fragments

    def fragments(self) -> list[Fragment]:
        slices = _slices(self._rows, self._num_fragments, 8 * _FRAGMENT_ROWS)
        return [RangeFragment(start, rows, self._shape) for start, rows in slices]

    def schema(self) -> pa.Schema:
        return _range_schema(self._shape)


def range(
    n: int, *, parallelism: int = -1, concurrency: int | None = None, override_num_blocks: int | None = None
) -> Dataset:
    """The numbers 0 to n - 1, in the column "id"."""
    return RangeSource(_count("range(n)", n), None, num_fragments(parallelism, override_num_blocks)).dataset()


def range_tensor(
    n: int,
    *,
    shape: tuple[int, ...] = (1,),
    parallelism: int = -1,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
) -> Dataset:
    """Tensors of this shape in the column "data": the first is filled with 0, the last with n - 1."""
    shape = tuple(_count("range_tensor(shape)", size) for size in shape)
    rows = _count("range_tensor(n)", n)
    return RangeSource(rows, shape, num_fragments(parallelism, override_num_blocks)).dataset()


def from_items(items: Sequence[Any], *, parallelism: int = -1, override_num_blocks: int | None = None) -> Dataset:
    """Dicts become columns; any other item becomes the column "item"."""
    if not hasattr(items, "__len__"):
        raise TypeError(
            f"from_items() takes a list, got {type(items).__name__}, which has no length and may be infinite: pass "
            "list(...), or list(itertools.islice(..., n)) if it is infinite"
        )
    rows = list(items)
    dicts = [isinstance(row, Mapping) for row in rows]
    if any(dicts) and not all(dicts):
        odd = dicts.index(not dicts[0])
        raise DataError(
            f"from_items: item {odd} is {type(rows[odd]).__name__} and item 0 is {type(rows[0]).__name__}: "
            "either all items must be dicts or none"
        )
    batch = batch_of_rows(rows) if rows and dicts[0] else batch_of({"item": rows})
    table = pa.Table.from_batches([batch])
    return TableSource(table, "from_items", num_fragments(parallelism, override_num_blocks)).dataset()


def from_numpy(ndarrays: np.ndarray | Sequence[np.ndarray]) -> Dataset:
    """A row for each index of the first dimension, in the column "data". Several arrays are concatenated."""
    several = isinstance(ndarrays, (list, tuple))
    return TableSource(_stacked([{"data": a} for a in (ndarrays if several else [ndarrays])]), "from_numpy").dataset()


def from_pandas(dfs: Any, override_num_blocks: int | None = None) -> Dataset:
    """A DataFrame, or several with the same columns. Named levels of the index become columns."""
    frames = list(dfs) if isinstance(dfs, (list, tuple)) else [dfs]
    table = _stacked([_columns_of_frame(frame) for frame in frames])
    return TableSource(table, "from_pandas", num_fragments(-1, override_num_blocks)).dataset()


def from_arrow(tables: Any, *, override_num_blocks: int | None = None) -> Dataset:
    """A pyarrow table, an object with `__arrow_c_stream__` (polars, DuckDB, ...), or a list of them."""
    parts = [_as_table(part) for part in (tables if isinstance(tables, (list, tuple)) else [tables])]
    count = num_fragments(-1, override_num_blocks)
    ends = None if len(parts) == 1 or count is not None else list(itertools.accumulate(map(len, parts)))
    return TableSource(_concatenated(parts, "from_arrow"), "from_arrow", count, ends).dataset()


def plain_table(table: pa.Table) -> pa.Table:
    """Converts newer layouts (string views, run-end encoding) and removes pandas metadata."""
    schema = pa.schema([pa.field(field.name, plain_type(field.type), field.nullable) for field in table.schema])
    return table.replace_schema_metadata(None) if table.schema.equals(schema) else table.cast(schema)


def num_fragments(parallelism: int | None, override_num_blocks: int | None) -> int | None:
    """The number of blocks from either of Ray's two arguments; None: not set."""
    asked = override_num_blocks if override_num_blocks is not None else parallelism
    if asked is None or asked == -1:
        return None
    if not isinstance(asked, int) or asked < 1:
        name = "override_num_blocks" if override_num_blocks is not None else "parallelism"
        raise _core.ConfigError(f"{name} = {asked!r}: expected a number of at least 1")
    return asked


def _slices(rows: int, count: int | None, size: int) -> list[tuple[int, int]]:
    """(start, rows) of each fragment, all of about equal size: `count` fragments, or as many as needed to have at most
    `size` rows in each. There are at least a few, because fragments and function calls are divided among workers.
    """
    if rows == 0:
        return []
    if count is None:
        count = max(-(-rows // size), min(_FEW_FRAGMENTS, rows // _FEW_ROWS), 1)
    edges = [rows * part // count for part in builtins.range(count + 1)]
    return [(start, end - start) for start, end in itertools.pairwise(edges) if end > start]


def _range_schema(shape: tuple[int, ...] | None) -> pa.Schema:
    if shape is None:
        return pa.schema([("id", pa.int64())])
    return pa.schema([("data", pa.fixed_shape_tensor(pa.int64(), shape))])


def _count(what: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < 0:
        raise _core.ConfigError(f"{what} = {value!r}: expected an integer, 0 or more")
    return int(value.__index__())


def _stacked(parts: Sequence[Mapping[str, Any]]) -> pa.Table:
    tables = [pa.Table.from_batches([batch_of(part)]) for part in parts]
    return _concatenated(tables, "the parts")


def _concatenated(tables: Sequence[pa.Table], what: str) -> pa.Table:
    if not tables:
        raise _core.ConfigError(f"{what}: the list is empty; pass at least one")
    first = tables[0].schema
    repeated = [name for name in first.names if first.names.count(name) > 1]
    if repeated:
        raise DataError(
            f"{what}: there are {first.names.count(repeated[0])} columns named {repeated[0]!r}; rename them"
        )
    schema = first
    for index, table in enumerate(tables):

        def differ(before: pa.Field, field: pa.Field, index: int = index) -> DataError:
            return DataError(
                f"{what}: column {field.name!r} is {before.type} in number 0 and {field.type} in number {index}"
            )

        schema = common_schema(schema, table.schema, differ)
    batches = [batch for table in tables for batch in table.to_batches()]
    return table_with(batches, schema, what)


def _as_table(value: Any) -> pa.Table:
    if is_frame(value):
        return _stacked([_columns_of_frame(value)])
    if hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__"):
        return pa.table(value)
    raise _core.ConfigError(
        f"from_arrow: expected a pyarrow.Table or an object with __arrow_c_stream__, got {type(value).__name__}"
    )


def _columns_of_frame(frame: Any) -> dict[str, Any]:
    if not is_frame(frame):
        raise _core.ConfigError(f"from_pandas: expected a pandas.DataFrame, got {type(frame).__name__}")
    named = [name for name in frame.index.names if name is not None]
    columns = {str(name): frame.index.get_level_values(name).to_series() for name in named}
    for position, name in enumerate(frame.columns):
        column = frame.iloc[:, position]
        if str(name) in columns:
            raise DataError(f"from_pandas: there are several columns named {str(name)!r}; rename them")
        arrays = column.dtype == object and any(isinstance(value, np.ndarray) for value in column)
        # All rows are known here: vectors of equal length become tensors.
        columns[str(name)] = array_of(list(column), str(name)) if arrays else column
    return columns
