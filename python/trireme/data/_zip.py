"""Combines the columns of datasets row by row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pyarrow as pa

from trireme._core import count_of
from trireme.data._derived import PiecesFragment, PlansSource
from trireme.data._fragment import Fragment
from trireme.data._fragment_slice import FragmentSlice, read, rows_between
from trireme.data._plan import Plan
from trireme.data._promotion import promoted


class ZippedSource(PlansSource):
    """Each fragment of the left dataset with the corresponding rows of the right."""

    name = "zip"

    def __init__(self, left: Plan, right: Plan) -> None:
        super().__init__([left, right])

    def _make(self) -> list[Fragment]:
        left, right = self._plans
        rows = left.rows(), right.rows()
        if rows[0] != rows[1]:
            raise ValueError(
                f"zip: one dataset has {count_of(rows[0], 'row')} and the other {rows[1]}; limit() makes them equal"
            )
        names, schema = self._new_names(), self.schema()
        pieces = left.pieces()
        edges = itertools.accumulate((piece.rows or 0 for piece in pieces), initial=0)
        both = zip(pieces, right.cuts(list(edges)), strict=True)
        return [ZippedFragment(piece, beside, names, schema) for piece, beside in both if beside]

    def schema(self) -> pa.Schema:
        left, right = self._plans
        names = self._new_names()
        return pa.schema([*left.schema(), *(field.with_name(names[field.name]) for field in right.schema())])

    def _new_names(self) -> dict[str, str]:
        """The names of the right columns after resolving conflicts with the left."""
        left, right = self._plans
        taken = set(left.schema().names)
        new: dict[str, str] = {}
        for name in right.schema().names:
            number = 0
            chosen = name
            while chosen in taken:
                number += 1
                chosen = f"{name}_{number}"
            taken.add(chosen)
            new[name] = chosen
        return new


class ZippedFragment(PiecesFragment):
    def __init__(
        self, left: FragmentSlice, right: Sequence[FragmentSlice], names: dict[str, str], schema: pa.Schema
    ) -> None:
        super().__init__(f"{left.name} beside {right[0].name}", [left, *right], left.rows)
        self.decoding_bytes = left.decoding_bytes + max(piece.decoding_bytes for piece in right)
        self._names = names
        self._schema = schema

    def batches(self, columns: Sequence[str] | None = None, row: int = 0) -> tuple[Iterator[pa.RecordBatch], int]:
        schema = self._schema if columns is None else pa.schema([self._schema.field(name) for name in columns])
        return promoted(self._zipped(schema.names, row), schema, self.name), row

    def _zipped(self, wanted: list[str], row: int) -> Iterator[pa.RecordBatch]:
        renamed = list(self._names.values())
        mine, its = rows_from(self._pieces[:1], row), rows_from(self._pieces[1:], row)
        for left, right in _aligned(mine, its):
            names = [*left.schema.names, *renamed]
            batch = pa.RecordBatch.from_arrays([*left.columns, *right.select(list(self._names)).columns], names)
            yield batch.select(wanted)


def rows_from(pieces: Sequence[FragmentSlice], row: int) -> Iterator[pa.RecordBatch]:
    """Starts exactly at this row."""
    for piece in pieces:
        rows = piece.rows or 0
        if row < rows:
            batches, first = read(piece, None, row)
            yield from rows_between(batches, first, row, None)
        row = max(row - rows, 0)


def _aligned(
    left: Iterator[pa.RecordBatch], right: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    mine, its = next(left, None), next(right, None)
    while mine is not None and its is not None:
        rows = min(mine.num_rows, its.num_rows)
        if rows:
            yield mine.slice(0, rows), its.slice(0, rows)
        mine = mine.slice(rows) if mine.num_rows > rows else next(left, None)
        its = its.slice(rows) if its.num_rows > rows else next(right, None)
