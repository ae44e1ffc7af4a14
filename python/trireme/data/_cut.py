"""Splits a fragment's batches into the batch sizes of functions, and into units of work for processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from trireme.data._fragment import Where
from trireme.data._promotion import conform, promoted

if TYPE_CHECKING:
    from trireme.data._functions import Function

# A round trip to a process costs about as much as copying this number of bytes, or as this number of quick calls.
_UNIT_BYTES = 1 << 20
_UNIT_ROWS = 1024
_UNIT_CALLS = 16
# Units of a record batch for each process, so that all of them have work until its end, however slow a call is.
_UNITS_EACH = 4


def exact_batches(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of `rows` rows; the last one may be smaller."""
    for parts in exact_parts(batches, rows):
        yield one_batch(parts)


def exact_parts(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[list[pa.RecordBatch]]:
    parts: list[pa.RecordBatch] = []
    missing = rows
    for batch in batches:
        begin = 0
        while batch.num_rows - begin >= missing:
            yield [*parts, batch.slice(begin, missing)]
            begin += missing
            parts, missing = [], rows
        if begin < batch.num_rows:
            parts.append(batch.slice(begin))
            missing -= batch.num_rows - begin
    if parts:
        yield parts


def one_batch(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    if any(not part.schema.equals(parts[0].schema) for part in parts):
        *_, last = promoted(parts, None, "a batch")
        parts = [conform(part, last.schema, "a batch") for part in parts]
    schema = parts[0].schema
    columns = [pa.concat_arrays([part.column(index) for part in parts]) for index in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class Stage(NamedTuple):
    """Functions that process a unit of work independently of other units.

    multiple: the number of rows in a unit is a multiple of it, except in the last unit; None: a unit is a record batch.
    """

    ops: tuple[Function, ...]
    multiple: int | None

    @property
    def name(self) -> str:
        return ", ".join(op.name for op in self.ops)


def stages(ops: Sequence[Function]) -> list[Stage]:
    """One stage, unless a function with a batch size follows one that may change the number of rows."""
    made: list[Stage] = []
    taken: list[Function] = []
    multiple: int | None = 1
    in_place = True  # rows have the same numbers for the function as in the unit
    for op in ops:
        size = op.batch_size
        if taken and size and (multiple is None or not in_place):
            made.append(Stage(tuple(taken), multiple))
            taken, multiple, in_place = [], 1, True
        if size:
            assert multiple is not None
            multiple = math.lcm(multiple, size)
        elif not op.by_rows and all(before.by_rows for before in taken):
            multiple = None  # the function receives record batches of any size
        in_place = in_place and op.keeps_rows is True
        taken.append(op)
    return [*made, Stage(tuple(taken), multiple)]


class WorkUnit(NamedTuple):
    parts: list[pa.RecordBatch]  # in order
    rows: int
    where: Where


def work_units(
    batches: Iterable[pa.RecordBatch], multiple: int | None, where: Where, processes: int = 1
) -> Iterator[WorkUnit]:
    """The units for a stage's processes. The number of multiples in a unit does not change the results."""
    row = where.row
    for parts in _parts(batches, multiple, processes):
        rows = sum(part.num_rows for part in parts)
        yield WorkUnit(parts, rows, Where(where.fragment, row))
        row += rows


def _parts(batches: Iterable[pa.RecordBatch], multiple: int | None, processes: int) -> Iterator[list[pa.RecordBatch]]:
    if multiple is None:
        for batch in batches:
            if batch.num_rows:
                yield [batch]
        return
    iterator = iter(batches)
    for first in iterator:
        if first.num_rows:
            break
    else:
        return
    fitting = _UNIT_BYTES * first.num_rows // max(pa.ipc.get_record_batch_size(first), 1)
    calls = _UNIT_CALLS if multiple > 1 else _UNIT_ROWS
    if processes > 1:
        calls = min(calls, -(-first.num_rows // (multiple * processes * _UNITS_EACH)))
    rows = max(min(fitting // multiple, calls), 1) * multiple
    yield from exact_parts(_chained(first, iterator), rows)


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def run_unit(
    ops: Sequence[Function], unit: WorkUnit, entered: Callable[[int], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """Runs the functions, here or in a function process. `entered` receives the index of the running function."""
    stream, where = iter(unit.parts), unit.where
    for index, op in enumerate(ops):
        if index and ops[index - 1].keeps_rows is not True:
            where = Where(f"the output of {ops[index - 1].name} for {rows_text(unit.where, unit.rows)}")
        stream = op(stream, where) if entered is None else _told(op, stream, where, index, entered)
    return stream


def _told(
    op: Function, batches: Iterator[pa.RecordBatch], where: Where, index: int, entered: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    def coming() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            entered(index)
            yield batch

    for made in op(coming(), where):
        yield made
        entered(index)


def rows_text(where: Where, rows: int) -> str:
    if rows == 1:
        return f"row {where.row} of {where.fragment}"
    return f"rows {where.row} to {where.row + rows - 1} of {where.fragment}"


def first_row(ops: Sequence[Function], row: int) -> int:
    """The row to start reading at so that the functions see `row` in the same batch as when reading from row 0."""
    made = stages(ops)
    multiple = made[0].multiple
    return row - row % multiple if len(made) == 1 and multiple else 0
