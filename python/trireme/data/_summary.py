"""Statistics of columns, and the description of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from trireme._core import count_of
from trireme._tables import import_pandas
from trireme.data._aggregates import AggregateFn, Count, Max, Mean, Min, Std
from trireme.data._column_ops import FilterExpression, require_columns
from trireme.data._derived import UnionSource
from trireme.data._folded_aggregates import (
    ApproximateQuantile,
    ApproximateTopK,
    MissingValuePercentage,
    ZeroPercentage,
)
from trireme.data._fragment import FunctionOp
from trireme.data._plan import Plan

Chosen = Mapping[Any, Callable[[str], Sequence[AggregateFn]]]


class DatasetSummary:
    """The result of Dataset.summary(). stats: for each column a dict of statistics."""

    STATISTIC_COLUMN = "statistic"

    def __init__(self, schema: pa.Schema, stats: dict[str, dict[str, Any]]) -> None:
        self.dataset_schema = schema
        self.stats = stats

    def to_pandas(self) -> Any:
        """One row per statistic, one column per column; None where a statistic does not apply."""
        pandas = import_pandas("DatasetSummary.to_pandas()")
        names = list(dict.fromkeys(name for stats in self.stats.values() for name in stats))
        columns = {
            column: pandas.Series([stats.get(name) for name in names], dtype=object)
            for column, stats in self.stats.items()
        }
        return pandas.DataFrame({self.STATISTIC_COLUMN: names, **columns})

    def get_column_stats(self, column: str) -> Any:
        """The statistics of one column, as a DataFrame with the columns "statistic" and "value"."""
        pandas = import_pandas("DatasetSummary.get_column_stats()")
        require_columns([column], pa.schema([(name, pa.null()) for name in self.stats]), "get_column_stats")
        stats = self.stats[column]
        return pandas.DataFrame(
            {self.STATISTIC_COLUMN: list(stats), "value": pandas.Series(list(stats.values()), dtype=object)}
        )

    def __repr__(self) -> str:
        lines = (
            f"{column}: {', '.join(f'{k}={v!r}' for k, v in stats.items())}" for column, stats in self.stats.items()
        )
        return "DatasetSummary(\n  " + "\n  ".join(lines) + "\n)"


def aggregates_of(field: pa.Field, chosen: Chosen | None) -> list[AggregateFn]:
    """The statistics that suit the column's type."""
    name, kind = field.name, field.type
    if chosen is not None and kind in chosen:
        return list(chosen[kind](name))
    basics: list[AggregateFn] = [Count(name, ignore_nulls=False), MissingValuePercentage(name)]
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        numbers = [Mean(name), Min(name), Max(name), Std(name), ApproximateQuantile(name, [0.5])]
        return [*basics, *numbers, ZeroPercentage(name)]
    if types.is_temporal(kind):
        return [*basics, Min(name), Max(name)]
    if types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        return basics
    return [*basics, ApproximateTopK(name, 10)]


def explained(plan: Plan, indent: str = "") -> Iterator[str]:
    """The operations in the order in which they run, and where."""
    source = plan.source
    inner = getattr(source, "plan", None)
    below = [inner] if isinstance(inner, Plan) else source._plans if isinstance(source, UnionSource) else []
    files = f" ({count_of(len(source.files()), 'file')})" if source.files() else ""
    yield f"{indent}{source.name}{files}"
    for part in below:
        yield from explained(part, indent + "    ")
    steps: list[Plan] = []
    step: Plan | None = plan
    while step is not None and step.op is not None:
        steps.append(step)
        step = step.parent
    for step in reversed(steps):
        assert step.op is not None
        if isinstance(step.op, FunctionOp):
            where = "a function; in separate processes of each worker"
        elif isinstance(step.op, FilterExpression) and step._pushed_down() is not None:
            where = "while files are read"
        else:
            where = "Arrow; as rows are read"
        yield f"{indent}-> {step.op.name}: {where}"
    if plan.shuffle is not None:
        yield f"{indent}-> shuffle {'rows' if plan.shuffle.rows else 'fragments'}: a new order in every epoch"
