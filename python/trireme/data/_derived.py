"""Sources derived from other datasets: some of their rows, unions, and tables computed from them."""

from __future__ import annotations

import contextlib
import itertools
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from trireme.data._column_ops import Promote
from trireme.data._fragment import BatchFragment, DataError, Fragment, FunctionOp, Source
from trireme.data._fragment_slice import FragmentSlice, read
from trireme.data._memory import TableSource, rows_of_batch
from trireme.data._plan import Plan, Shuffle
from trireme.data._promotion import common_schema, one_table, promoted
from trireme.data._stream import stream


class PlanSource(Source):
    """Slices of another plan, selected on first use."""

    def __init__(
        self,
        plan: Plan,
        name: str,
        choose: Callable[[Plan], Sequence[Fragment]],
        span: tuple[int, int | None] = (0, None),
    ) -> None:
        """span: if they are consecutive rows of the plan, the first one and the end."""
        self.plan = ordered(plan)
        self.name = name
        self.span = span
        self._choose: Callable[[Plan], Sequence[Fragment]] | None = choose
        self._fragments: list[Fragment] = []

    def __getstate__(self) -> dict[str, Any]:
        self.fragments()
        self.plan.schema()
        return self.__dict__

    def fragments(self) -> list[Fragment]:
        if self._choose is not None:
            self._fragments = list(self._choose(self.plan))
            self._choose = None
        return self._fragments

    def schema(self) -> pa.Schema:
        return self.plan.schema()

    def files(self) -> list[str]:
        return self.plan.source.files()


class PlansSource(Source):
    """Made of the rows of several plans, in their order."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = [ordered(plan) for plan in plans]
        self._fragments: list[Fragment] | None = None

    @abstractmethod
    def _make(self) -> list[Fragment]: ...

    def fragments(self) -> list[Fragment]:
        if self._fragments is None:
            self._fragments = self._make()
        return self._fragments

    def alike(self) -> list[Plan]:
        """All with the same columns and types."""
        schema = self.schema()
        return [plan if plan.schema().equals(schema) else plan.then(Promote(schema)) for plan in self._plans]

    def schema(self) -> pa.Schema:
        found = self._plans[0].schema()
        for index, plan in enumerate(self._plans[1:], 1):

            def differ(before: pa.Field, field: pa.Field, index: int = index) -> DataError:
                return DataError(
                    f"union: column {field.name!r} is {field.type} in dataset {index} and {before.type} in the ones "
                    "before; rename, drop or cast it first"
                )

            found = common_schema(found, plan.schema(), differ)
        return found

    def files(self) -> list[str]:
        return [file for plan in self._plans for file in plan.source.files()]


class UnionSource(PlansSource):
    name = "union"
    own_columns = False  # a dataset may have renamed its columns

    def _make(self) -> list[Fragment]:
        return [piece for plan in self.alike() for piece in plan.pieces()]


class ComputedSource(Source):
    """A table that is computed on first use, and kept. Workers receive the table, not the computation."""

    def __init__(
        self, name: str, compute: Callable[[], pa.Table], schema: Callable[[], pa.Schema] | None = None
    ) -> None:
        self.name = name
        self._compute: Callable[[], pa.Table] | None = compute
        self._schema = schema
        self._held: TableSource | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        self._source()
        return self.__dict__ | {"_schema": None, "_lock": contextlib.nullcontext()}

    def table(self) -> pa.Table:
        return self._source().table

    def fragments(self) -> list[Fragment]:
        return self._source().fragments()

    def schema(self) -> pa.Schema:
        if self._held is None and self._schema is not None:
            return self._schema()
        return self._source().schema()

    def _source(self) -> TableSource:
        with self._lock:
            if self._held is None:
                assert self._compute is not None
                self._held = TableSource(self._compute(), self.name)
                self._compute = None
            return self._held


class PiecesFragment(BatchFragment):
    """Computed from the rows of several slices."""

    def __init__(self, name: str, pieces: Sequence[FragmentSlice], rows: int | None = None) -> None:
        self.name = name
        self._pieces = list(pieces)
        self.rows: int = sum(piece.rows or 0 for piece in pieces) if rows is None else rows
        sizes = [piece.size_bytes for piece in pieces]
        self.size_bytes = None if None in sizes else sum(size or 0 for size in sizes)
        self.decoding_bytes = max(piece.decoding_bytes for piece in pieces)
        self.remote = any(piece.remote for piece in pieces)
        self.version = repr([piece.identity() for piece in pieces])

    @property
    def functions(self) -> list[tuple[FunctionOp, ...]]:
        return [chain for piece in self._pieces for chain in piece.functions]


class JoinedFragment(PiecesFragment):
    """Several slices read as one fragment."""

    def __init__(self, pieces: Sequence[FragmentSlice]) -> None:
        super().__init__(f"{pieces[0].name} to {pieces[-1].name}", pieces)

    def batches(self, columns: Sequence[str] | None = None, row: int = 0) -> tuple[Iterator[pa.RecordBatch], int]:
        at = 0
        index = 0
        while index + 1 < len(self._pieces) and at + (self._pieces[index].rows or 0) <= row:
            at += self._pieces[index].rows or 0
            index += 1
        batches, first = read(self._pieces[index], columns, row - at)
        rest = itertools.chain.from_iterable(read(piece, columns, 0)[0] for piece in self._pieces[index + 1 :])
        return promoted(itertools.chain(batches, rest), None, self.name), at + first


def ordered(plan: Plan) -> Plan:
    """Executes the shuffle now, for operations that depend on the order of the rows."""
    if plan.shuffle is None:
        return plan
    if plan.carried_out is None:
        shuffle, plain = plan.shuffle, plan.shuffled(None)
        if shuffle.rows:
            source: Source = ComputedSource("random_shuffle", lambda: _table(_shuffled(plan), plan), plain.schema)
        else:
            source = PlanSource(plain, "randomize_block_order", partial(_permuted, seed=_seed(shuffle)))
        plan.carried_out = Plan(source)
    return plan.carried_out


def stream_of(plan: Plan, ahead: bool = True, pieces: list[FragmentSlice] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows in order, or those of some slices. Batches have the schema of the ones before, or a wider one."""
    if pieces is None and plan.shuffle is not None and plan.shuffle.rows and plan.carried_out is None:
        yield from _shuffled(plan)
        return
    plan = ordered(plan)
    pieces = plan.in_stream() if pieces is None else pieces
    batches = stream(pieces, ahead)
    functions = any(piece.has_functions for piece in pieces)
    yield from promoted(batches, None if functions else plan.schema(), name_of(plan))


def _shuffled(plan: Plan) -> Iterator[pa.RecordBatch]:
    """The order of the first epoch of a training run with one worker and this seed."""
    from trireme.data._iterator import DataIterator
    from trireme.data._planned import Planned

    assert plan.shuffle is not None
    planned = Planned(plan.shuffled(replace(plan.shuffle, seed=_seed(plan.shuffle))))
    if planned.rows == 0:
        return
    rows = rows_of_batch(sum(size for _, size, _ in planned.fragments) / max(planned.rows, 1))
    batches = DataIterator.of(planned, rank=0, world=1).iter_batches(batch_size=rows, batch_format="pyarrow")
    tables = (_encoded(batch, planned.schema) for table in batches for batch in table.to_batches())
    yield from promoted(tables, planned.schema, name_of(plan))


def _encoded(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """With dictionaries where the schema has them: the batches of the core have plain values."""
    for index, field in enumerate(batch.schema):
        place = schema.get_field_index(field.name)
        kind = schema.field(place).type if place >= 0 else field.type
        if pa.types.is_dictionary(kind) and field.type.equals(kind.value_type):
            encoded = batch.column(index).dictionary_encode().cast(kind)
            batch = batch.set_column(index, pa.field(field.name, kind), encoded)
    return batch


def _permuted(plan: Plan, seed: int) -> list[FragmentSlice]:
    pieces = plan.pieces()
    return [pieces[index] for index in np.random.default_rng(seed).permutation(len(pieces))]


def _seed(shuffle: Shuffle) -> int:
    return shuffle.own if shuffle.seed is None else shuffle.seed


def table_of(plan: Plan) -> pa.Table:
    """All rows, in memory."""
    return _table(stream_of(plan), plan)


def _table(batches: Iterator[pa.RecordBatch], plan: Plan) -> pa.Table:
    table = one_table(batches, name_of(plan))
    return plan.schema().empty_table() if table is None else table


def name_of(plan: Plan) -> str:
    """The operation that decides the types, for messages."""
    functions = [op.name for op in plan.ops() if isinstance(op, FunctionOp)]
    return functions[-1] if functions else plan.source.name
