"""Combines the columns of datasets row by row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pyarrow as pa

from trireme._core import count_of
from trireme.data._derived import PiecesFragment, ordered
from trireme.data._fragment import Fragment, Source
from trireme.data._fragment_slice import FragmentSlice, read
from trireme.data._plan import Plan
from trireme.data._promotion import promoted


class ZippedSource(Source):
    """Each fragment of the left dataset with the corresponding rows of the right."""

    name = "zip"

    def __init__(self, left: Plan, right: Plan) -> None:
        self._left = ordered(left)
        self._right = ordered(right)
        self._fragments: list[Fragment] | None = None

    def fragments(self) -> list[Fragment]:
        if self._fragments is None:
            rows = self._left.rows(), self._right.rows()
            if rows[0] != rows[1]:
                raise ValueError(
                    f"zip: one dataset has {count_of(rows[0], 'row')} and the other {rows[1]}; limit() makes them equal"
                )
            names, schema = self._new_names(), self.schema()
            pieces = self._left.pieces()
            edges = itertools.accumulate((piece.rows or 0 for piece in pieces), initial=0)
            both = zip(pieces, self._right.cuts(list(edges)), strict=True)
            self._fragments = [ZippedFragment(piece, beside, names, schema) for piece, beside in both if beside]
        return self._fragments

    def schema(self) -> pa.Schema:
        names = self._new_names()
        fields = [*self._left.schema(), *(field.with_name(names[field.name]) for field in self._right.schema())]
        return pa.schema(fields)

    def files(self) -> list[str]:
        return [*self._left.source.files(), *self._right.source.files()]

    def _new_names(self) -> dict[str, str]:
        """The names of the right columns after resolving conflicts with the left."""
        taken = set(self._left.schema().names)
        new: dict[str, str] = {}
        for name in self._right.schema().names:
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
            skip = row - first
            for batch in batches:
                if skip < batch.num_rows:
                    yield batch.slice(skip)
                skip = max(skip - batch.num_rows, 0)
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
