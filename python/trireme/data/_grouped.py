"""Groups of rows with the same key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trireme.data._aggregates import (
    AggregateFn,
    Count,
    Reductions,
    aggregates_on,
    check_aggregates,
    grouped_by_value,
    needed_columns,
    over_groups,
    over_rows,
)
from trireme.data._column_ops import SelectColumns, one_batch, require_columns
from trireme.data._derived import ComputedSource, stream_of, table_of
from trireme.data._fragment import Fragment, Source
from trireme.data._functions import MapBatches
from trireme.data._memory import HeldTable
from trireme.data._methods import DatasetMethods, FunctionOptions, function_options
from trireme.data._plan import Plan
from trireme.data._relational import sorted_table
from trireme.data._tensors import one_chunk

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset


class GroupedData(Reductions["Dataset"]):
    """The result of Dataset.groupby(). Results are sorted by the key. Null keys are a group, too, and sort last."""

    def __init__(self, dataset: DatasetMethods, keys: list[str]) -> None:
        self._dataset = dataset
        self._keys = keys

    def __repr__(self) -> str:
        return f"GroupedData({self._dataset!r}, by {', '.join(self._keys) or 'nothing'})"

    def aggregate(self, *aggs: AggregateFn) -> Dataset:
        """One row for each group, with a column for each aggregate: aggregate(Mean("x"), Max("y"))."""
        plan = self._dataset._plan.shuffled(None)
        keys = self._keys

        def computed() -> pa.Table:
            require_columns(keys, plan.schema(), "groupby")
            check_aggregates(aggs, plan.schema())
            columns = needed_columns(aggs)
            names = [] if columns is None else list(dict.fromkeys([*keys, *columns]))
            needed = plan.then(SelectColumns(names)) if names else plan
            if not keys:
                return pa.Table.from_pylist([over_rows(stream_of(needed), aggs)])
            return over_groups(table_of(needed), keys, aggs)

        return self._dataset._made(ComputedSource(f"groupby({', '.join(keys)})", computed))

    def count(self) -> Dataset:
        """The number of rows in each group, in the column "count()"."""
        return self.aggregate(Count())

    def map_groups(
        self,
        fn: Callable[..., Any],
        *,
        zero_copy_batch: bool = True,
        batch_format: str | None = "default",
        **options: Unpack[FunctionOptions],
    ) -> Dataset:
        """Calls fn on each group's rows, as one batch; fn returns a batch. All rows are sorted in memory."""
        given = function_options("map_groups", options)
        op = MapBatches(
            fn, batch_format=batch_format, zero_copy_batch=zero_copy_batch, udf_modifying_row_count=True, **given
        )
        return self._dataset._made(Plan(GroupsSource(self._dataset._plan.shuffled(None), self._keys)).then(op))

    def _on(self, kind: type[AggregateFn], on: str | Sequence[str] | None, **options: Any) -> Dataset:
        aggregates = aggregates_on(kind, on, self._dataset._plan.schema(), self._keys, **options)
        return self.aggregate(*aggregates)


class GroupsSource(Source):
    """Rows sorted by a key; readers return each group as one record batch."""

    def __init__(self, plan: Plan, keys: list[str]) -> None:
        self.name = f"groupby({', '.join(keys)})"
        self._plan: Plan | None = plan
        self._keys = keys
        self._fragments: list[Fragment] = []
        self._found: pa.Schema | None = None

    def __getstate__(self) -> dict[str, Any]:
        self.fragments()
        return self.__dict__

    def schema(self) -> pa.Schema:
        if self._found is None:
            assert self._plan is not None
            require_columns(self._keys, self._plan.schema(), "groupby")
            self._found = self._plan.schema()
        return self._found

    def fragments(self) -> list[Fragment]:
        if self._plan is not None:
            self.schema()
            table = table_of(self._plan)
            if self._keys:
                table = sorted_table(table, [(key, "ascending") for key in self._keys])
            edges = _edges(table, self._keys)
            self._fragments = [GroupsFragment(HeldTable(table), edges, self.name)] if table.num_rows else []
            self._plan = None
        return self._fragments


class GroupsFragment(Fragment):
    def __init__(self, held: HeldTable, edges: np.ndarray, name: str) -> None:
        self._held = held
        self._edges = edges
        self.name = f"{name}, {len(edges) - 1} groups"
        self.rows: int = held.table.num_rows
        self.size_bytes = held.table.nbytes

    def open(self, columns: Sequence[str] | None = None, row: int = 0) -> tuple[pa.RecordBatchReader, int]:
        table = self._held.table if columns is None else self._held.table.select(list(columns))
        first = int(np.searchsorted(self._edges, row, "right")) - 1
        groups = (
            one_batch(table.slice(begin, end - begin))
            for begin, end in zip(self._edges[first:-1], self._edges[first + 1 :], strict=True)
        )
        return pa.RecordBatchReader.from_batches(table.schema, groups), int(self._edges[first])


def _edges(table: pa.Table, keys: list[str]) -> np.ndarray:
    """The first row of each group, and the end of the last group."""
    rows = table.num_rows
    starts = np.zeros(rows, bool)
    starts[:1] = True
    table = grouped_by_value(table.select(keys), keys)
    for key in keys:
        encoded = pc.dictionary_encode(table.column(key), null_encoding="encode").unify_dictionaries()
        codes = one_chunk(encoded).indices.to_numpy()
        starts[1:] |= codes[1:] != codes[:-1]
    return np.append(np.flatnonzero(starts), rows)
