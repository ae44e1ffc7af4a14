"""Sort, join, zip, and aggregates over all rows. Arrow computes them; sort and join load all rows into memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trireme._core import count_of
from trireme.data._aggregates import (
    AggregateFn,
    Reductions,
    Unique,
    aggregates_on,
    check_aggregates,
    grouped_by_value,
    needed_columns,
    over_rows,
)
from trireme.data._column_ops import SelectColumns, require_columns
from trireme.data._derived import ComputedSource, stream_of, table_of
from trireme.data._methods import DatasetMethods, plans_of
from trireme.data._plan import Plan
from trireme.data._promotion import common_type
from trireme.data._tensors import cast
from trireme.data._zip import ZippedSource

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset
    from trireme.data._grouped import GroupedData
    from trireme.data._summary import DatasetSummary

# Our names and Ray's, with Acero's names.
_JOINS = {
    "inner": "inner",
    "left": "left outer",
    "left_outer": "left outer",
    "right": "right outer",
    "right_outer": "right outer",
    "full": "full outer",
    "full_outer": "full outer",
    "outer": "full outer",
    "semi": "left semi",
    "left_semi": "left semi",
    "right_semi": "right semi",
    "anti": "left anti",
    "left_anti": "left anti",
    "right_anti": "right anti",
}


class RelationalMethods(DatasetMethods, Reductions[Any]):
    def sort(
        self, key: str | Sequence[str], descending: bool | Sequence[bool] = False, boundaries: Any = None
    ) -> Dataset:
        """Sorts by one or more columns. The sort is stable, and nulls are last. Loads all rows into memory."""
        keys = [key] if isinstance(key, str) else list(key)
        if not keys:
            raise ValueError("sort: pass one or more columns to sort by")
        return self._made(sorted_plan(self._plan, keys, descending))

    def zip(self, *other: Dataset) -> Dataset:
        """The columns of all datasets, row by row. All need the same number of rows.

        Duplicate names get a suffix: _1, _2, ... Rows are counted, but not loaded into memory.
        """
        if not other:
            raise ValueError("zip: pass at least one other dataset")
        plan = self._plan
        for each in plans_of("zip", other):
            plan = Plan(ZippedSource(plan, each))
        return self._made(plan)

    def join(
        self,
        ds: Dataset,
        join_type: str = "inner",
        num_partitions: int | None = None,
        on: str | Sequence[str] = ("id",),
        right_on: str | Sequence[str] | None = None,
        left_suffix: str | None = None,
        right_suffix: str | None = None,
        **unused: Any,
    ) -> Dataset:
        """Joins rows with equal keys, in the order of this dataset. Loads all rows of both into memory.

        join_type: inner, left, right, full, semi (rows of this dataset with a match), anti (rows without a match), or
        Ray's names, such as left_outer. Nulls never match. Suffixes are for columns that are in both datasets.
        """
        if join_type not in _JOINS:
            raise ValueError(f"join(join_type={join_type!r}): expected one of {', '.join(_JOINS)}")
        left_on = [on] if isinstance(on, str) else list(on)
        right_keys = left_on if right_on is None else [right_on] if isinstance(right_on, str) else list(right_on)
        if not left_on or len(left_on) != len(right_keys):
            raise ValueError(
                f"join: on={left_on} and right_on={right_keys} must have the same number of columns, 1 or more"
            )
        left, right = self._plan, ds._plan
        suffixes = (left_suffix or "", right_suffix or "")

        def joined() -> pa.Table:
            require_columns(left_on, left.schema(), "join(on)")
            require_columns(right_keys, right.schema(), "join(right_on)")
            return _join(table_of(left), table_of(right), _JOINS[join_type], left_on, right_keys, suffixes)

        return self._made(ComputedSource(f"join({join_type}, on={', '.join(left_on)})", joined))

    def groupby(self, key: str | Sequence[str] | None, num_partitions: int | None = None) -> GroupedData:
        """Groups rows by the values of these columns; None: all rows are one group. Loads the needed columns into
        memory."""
        from trireme.data._grouped import GroupedData

        keys = [] if key is None else [key] if isinstance(key, str) else list(key)
        return GroupedData(self, keys)

    def aggregate(self, *aggs: AggregateFn) -> dict[str, Any]:
        """Several aggregates in one pass: aggregate(Mean("x"), Max("y"))."""
        check_aggregates(aggs, self._plan.schema())
        names = needed_columns(aggs)
        plan = self._plan.shuffled(None)
        return over_rows(stream_of(plan.then(SelectColumns(names)) if names else plan), aggs)

    def summary(self, columns: Sequence[str] | None = None, override_dtype_agg_mapping: Any = None) -> DatasetSummary:
        """Statistics of the columns by type, in one pass: count, missing values, mean, extremes, median, frequent
        values.

        override_dtype_agg_mapping: a dict of pyarrow types to functions that return the aggregates for a column.
        """
        from trireme.data._summary import DatasetSummary, aggregates_of

        schema = self._plan.schema()
        names = schema.names if columns is None else list(columns)
        require_columns(names, schema, "summary(columns)")
        stats: dict[str, dict[str, Any]] = {}
        chosen = {name: aggregates_of(schema.field(name), override_dtype_agg_mapping) for name in names}
        found = self.aggregate(*(one for aggregates in chosen.values() for one in aggregates)) if names else {}
        for name, aggregates in chosen.items():
            stats[name] = {one.name.removesuffix(f"({name})"): found[one.name] for one in aggregates}
        return DatasetSummary(schema, stats)

    def unique(self, column: str, ignore_nulls: bool = False) -> list[Any]:
        """The distinct values of a column, in order of first appearance."""
        values: list[Any] = next(iter(self.aggregate(Unique(column, ignore_nulls)).values()))
        return values

    def _on(self, kind: type[AggregateFn], on: str | Sequence[str] | None, **options: Any) -> Any:
        result = self.aggregate(*aggregates_on(kind, on, self._plan.schema(), **options))
        return next(iter(result.values())) if len(result) == 1 else result


def sorted_plan(plan: Plan, keys: list[str], descending: bool | Sequence[bool]) -> Plan:
    down = [descending] * len(keys) if isinstance(descending, bool) else list(descending)
    if len(down) != len(keys):
        given, columns = count_of(len(down), "value"), count_of(len(keys), "column")
        raise ValueError(f"sort: {given} of `descending` for {columns}; pass one, or one for each")
    order = [(key, "descending" if is_down else "ascending") for key, is_down in zip(keys, down, strict=True)]
    plan = plan.shuffled(None)

    def schema() -> pa.Schema:
        require_columns(keys, plan.schema(), "sort")
        return plan.schema()

    def computed() -> pa.Table:
        schema()
        return sorted_table(table_of(plan), order)

    return Plan(ComputedSource(f"sort({', '.join(keys)})", computed, schema))


def sorted_table(table: pa.Table, order: list[tuple[str, str]]) -> pa.Table:
    names = [name for name, _ in order]
    try:
        indices = pc.sort_indices(grouped_by_value(table.select(names), names), sort_keys=order)
    except (pa.ArrowException, TypeError) as error:
        kinds = ", ".join(f"{name}: {table.schema.field(name).type}" for name in names)
        raise ValueError(f"cannot sort by {kinds}: {str(error).splitlines()[0]}") from error
    return table.take(indices)


def _join(
    left: pa.Table, right: pa.Table, kind: str, left_on: list[str], right_on: list[str], suffixes: tuple[str, str]
) -> pa.Table:
    """Acero joins the keys and the row numbers; the columns, which may be of any type, are gathered by row number."""
    given = left, right
    left, right = _same_keys(left, right, left_on, right_on)
    keys = [f"key{index}" for index in range(len(left_on))]
    sides = []
    for table, on, name in ((left, left_on, "left"), (right, right_on, "right")):
        numbered = grouped_by_value(table.select(on).rename_columns(keys), keys)
        sides.append(numbered.append_column(name, pa.array(np.arange(table.num_rows))))
    try:
        pairs = sides[0].join(sides[1], keys, join_type=kind, use_threads=False)
    except pa.ArrowException as error:
        kinds = [
            ", ".join(f"{n}: {t.schema.field(n).type}" for n in on) for t, on in ((left, left_on), (right, right_on))
        ]
        raise ValueError(f"join: cannot match {kinds[0]} with {kinds[1]}: {str(error).splitlines()[0]}") from error
    order = [(name, "ascending") for name in ("left", "right") if name in pairs.schema.names]
    pairs = pairs.sort_by(order)
    if kind in ("left semi", "left anti"):
        return given[0].take(pairs.column("left"))
    if kind in ("right semi", "right anti"):
        return given[1].take(pairs.column("right"))
    columns: dict[str, Any] = {}
    left_rows, right_rows = left.take(pairs.column("left")), right.take(pairs.column("right"))
    for mine, its in zip(left_on, right_on, strict=True):
        columns[mine] = pc.coalesce(left_rows.column(mine), right_rows.column(its))
    rest = [name for name in left.schema.names if name not in left_on]
    others = [name for name in right.schema.names if name not in right_on]
    for names, rows, suffix, clashes in (
        (rest, left_rows, suffixes[0], others),
        (others, right_rows, suffixes[1], rest),
    ):
        for name in names:
            new = name + suffix if name in clashes else name
            if new in columns:
                raise ValueError(
                    f"join: column {name!r} is in both datasets; set left_suffix or right_suffix, or drop or rename it"
                )
            columns[new] = rows.column(name)
    return pa.table(columns)


def _same_keys(left: pa.Table, right: pa.Table, left_on: list[str], right_on: list[str]) -> tuple[pa.Table, pa.Table]:
    """Promotes the keys to common types."""
    for mine, its in zip(left_on, right_on, strict=True):
        kinds = left.schema.field(mine).type, right.schema.field(its).type
        kind = common_type(*kinds)
        if kind is None:
            raise ValueError(f"join: cannot match {mine}: {kinds[0]} with {its}: {kinds[1]}; cast one of them first")
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        left, right = _with_type(left, mine, kind), _with_type(right, its, kind)
    return left, right


def _with_type(table: pa.Table, name: str, kind: pa.DataType) -> pa.Table:
    column = table.column(name)
    if column.type == kind:
        return table
    try:
        chunks = [cast(chunk, kind) for chunk in column.chunks]
    except pa.ArrowException as error:
        raise ValueError(f"join: column {name!r} ({column.type}) cannot be compared as {kind}: {error}") from error
    return table.set_column(table.schema.get_field_index(name), name, pa.chunked_array(chunks, kind))
