"""Aggregates without a grouped function in Arrow: each group's values are folded into a state. Names as in Ray Data."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trireme.data._aggregates import AggregateFn, Unique, plain_floats, together
from trireme.data._tensors import one_chunk

_MOST_DISTINCT_BITS = 26


class FoldedAggregate(AggregateFn):
    """Implements start(), add() and finish() only."""

    function = ""  # none of Arrow's

    def type_of(self, column: pa.DataType) -> pa.DataType | None:
        """The type of the results; None: inferred."""
        return None


class AggregateFnV2(FoldedAggregate, ABC):
    """An aggregate of your own: aggregate_block() computes a partial result, combine() joins two, finalize() converts
    the last one to the result.

    zero_factory: returns the initial accumulator. on: the column that blocks contain; None: all columns. ignore_nulls:
    partial results that are None are skipped; False: one of them makes the result None.
    """

    needs_column = False

    def __init__(self, name: str, zero_factory: Callable[[], Any], *, on: str | None, ignore_nulls: bool) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"AggregateFnV2(name={name!r}): expected a name for the column of the results")
        self.verb = name
        super().__init__(on, ignore_nulls, name)
        self.zero_factory = zero_factory

    @abstractmethod
    def aggregate_block(self, block: pa.Table) -> Any:
        """The partial result of some rows."""

    @abstractmethod
    def combine(self, current_accumulator: Any, new: Any) -> Any: ...

    def finalize(self, accumulator: Any) -> Any:
        return accumulator

    def get_target_column(self) -> str | None:
        return self.on

    # As in Ray: with ignore_nulls the first partial result is the initial accumulator.

    def start(self) -> Any:
        return (None if self.ignore_nulls else self.zero_factory()), False

    def add(self, state: Any, column: Any) -> Any:
        block = column if isinstance(column, pa.Table) else pa.table({self.on: column})
        value, null = state
        new = self.aggregate_block(block) if block.num_rows else None
        if new is None:
            return value, null or (not self.ignore_nulls and block.num_rows > 0)
        return (new if value is None else self.combine(value, new)), null

    def finish(self, state: Any) -> Any:
        value, null = state
        return None if null or value is None else self.finalize(value)


class _Collected(FoldedAggregate):
    """Keeps the values."""

    def start(self) -> list[Any]:
        return []

    def add(self, state: list[Any], column: Any) -> list[Any]:
        state.append(column)
        return state

    def joined(self, state: list[Any]) -> pa.ChunkedArray | None:
        return together(state, self.name) if state else None


class Quantile(_Collected):
    """The exact q-quantile, linear between values. NaN is ignored like null. Keeps the values in memory."""

    verb = "quantile"

    def __init__(
        self, on: str | None = None, q: float = 0.5, ignore_nulls: bool = True, alias_name: str | None = None
    ) -> None:
        super().__init__(on, ignore_nulls, alias_name)
        self.q = _fraction("Quantile(q)", q)

    def add(self, state: list[Any], column: Any) -> list[Any]:
        _check_ordered(column.type)
        return super().add(state, column)

    def finish(self, state: list[Any]) -> Any:
        values = self.joined(state)
        if values is None or (not self.ignore_nulls and values.null_count):
            return None
        if pa.types.is_boolean(values.type):
            values = values.cast(pa.int8())
        return pc.quantile(values, q=self.q, interpolation="linear")[0].as_py()

    def type_of(self, column: pa.DataType) -> pa.DataType:
        return pa.float64()


class AsList(_Collected):
    """All values in the order of the rows, as a list. ignore_nulls: without nulls."""

    verb = "list"

    def __init__(self, on: str | None = None, alias_name: str | None = None, ignore_nulls: bool = False) -> None:
        super().__init__(on, ignore_nulls, alias_name)

    def finish(self, state: list[Any]) -> Any:
        values = self.joined(state)
        if values is None:
            return []
        return (values.drop_null() if self.ignore_nulls else values).to_pylist()

    def type_of(self, column: pa.DataType) -> pa.DataType:
        return pa.list_(_decoded(column))


class CountDistinct(Unique):
    """The number of distinct values. NaN is one value; ignore_nulls=False: null is one, too."""

    verb = function = "count_distinct"

    def __init__(self, on: str | None = None, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        super().__init__(on, ignore_nulls, alias_name)

    def prepared(self, column: Any) -> Any:
        return plain_floats(super().prepared(column))

    def finish(self, state: Any) -> int:
        return 0 if state is None else len(state) - (state.null_count if self.ignore_nulls else 0)


class ValueCounter(FoldedAggregate):
    """The distinct values and their numbers, {"values": [...], "counts": [...]}, in order of first appearance."""

    verb = "value_counter"

    def __init__(self, on: str | None = None, alias_name: str | None = None, ignore_nulls: bool = True) -> None:
        super().__init__(on, ignore_nulls, alias_name)

    def start(self) -> Counter[Any]:
        return Counter()

    def add(self, state: Counter[Any], column: Any) -> Counter[Any]:
        _count(state, column, self.ignore_nulls)
        return state

    def finish(self, state: Counter[Any]) -> dict[str, list[Any]]:
        return {"values": list(state.keys()), "counts": list(state.values())}

    def type_of(self, column: pa.DataType) -> pa.DataType:
        return pa.struct([("values", pa.list_(_decoded(column))), ("counts", pa.list_(pa.int64()))])


class ApproximateTopK(FoldedAggregate):
    """The k most frequent values, [{"x": value, "count": n}, ...] for column "x", most frequent first.

    Exact if there are at most 2**log_capacity distinct values; otherwise counts may be too low, by at most the number
    of rows divided by 2**log_capacity (Misra and Gries).
    """

    verb = "approx_topk"

    def __init__(
        self,
        on: str | None = None,
        k: int = 10,
        log_capacity: int = 15,
        alias_name: str | None = None,
        encode_lists: bool = False,
    ) -> None:
        super().__init__(on, True, alias_name)
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise ValueError(f"ApproximateTopK(k={k!r}): expected a number of values, 1 or more")
        if not isinstance(log_capacity, int) or not 0 < log_capacity <= _MOST_DISTINCT_BITS:
            raise ValueError(f"ApproximateTopK(log_capacity={log_capacity!r}): expected 1 to {_MOST_DISTINCT_BITS}")
        self.k = k
        self._capacity = 1 << log_capacity
        self._encode_lists = encode_lists

    def start(self) -> Counter[Any]:
        return Counter()

    def add(self, state: Counter[Any], column: Any) -> Counter[Any]:
        if self._encode_lists and pa.types.is_list(column.type):
            column = column.flatten()
        _count(state, column, True)
        if len(state) > self._capacity:
            cut = sorted(state.values(), reverse=True)[self._capacity]
            state = Counter({value: count - cut for value, count in state.items() if count > cut})
        return state

    def finish(self, state: Counter[Any]) -> list[dict[str, Any]]:
        return [{str(self.on): value, "count": count} for value, count in state.most_common(self.k)]


class MissingValuePercentage(FoldedAggregate):
    """The percentage of values that are null or NaN, 0 to 100; None: no rows."""

    verb = "missing_pct"

    def __init__(self, on: str | None = None, alias_name: str | None = None) -> None:
        super().__init__(on, False, alias_name)

    def start(self) -> tuple[int, int]:
        return 0, 0

    def add(self, state: tuple[int, int], column: Any) -> tuple[int, int]:
        missing = pc.sum(pc.is_null(column, nan_is_null=True)).as_py() or 0
        return state[0] + missing, state[1] + len(column)

    def finish(self, state: tuple[int, int]) -> float | None:
        return 100.0 * state[0] / state[1] if state[1] else None

    def type_of(self, column: pa.DataType) -> pa.DataType:
        return pa.float64()


class ZeroPercentage(MissingValuePercentage):
    """The percentage of values that are 0, of those that are not null (ignore_nulls) or of all; None: no values."""

    verb = "zero_pct"

    def __init__(self, on: str | None = None, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        super().__init__(on, alias_name)
        self.ignore_nulls = ignore_nulls

    def add(self, state: tuple[int, int], column: Any) -> tuple[int, int]:
        zeros = pc.sum(pc.equal(column, pa.scalar(0, column.type))).as_py() or 0
        return state[0] + zeros, state[1] + len(column) - (column.null_count if self.ignore_nulls else 0)


class ApproximateQuantile(FoldedAggregate):
    """Approximate quantiles, as a list. NaN is ignored like null. Needs little memory: a t-digest.

    quantile_precision: the size of the digest; the larger, the more accurate.
    """

    verb = "approx_quantile"

    def __init__(
        self,
        on: str | None = None,
        quantiles: Sequence[float] = (0.5,),
        quantile_precision: int = 800,
        alias_name: str | None = None,
    ) -> None:
        super().__init__(on, True, alias_name)
        self.quantiles = [_fraction("ApproximateQuantile(quantiles)", q) for q in quantiles]
        if not self.quantiles:
            raise ValueError("ApproximateQuantile(quantiles=[]): expected at least one number from 0 to 1")
        self._precision = quantile_precision

    def start(self) -> np.ndarray:
        return np.empty((2, 0))

    def add(self, state: np.ndarray, column: Any) -> np.ndarray:
        _check_ordered(column.type)
        values = column.drop_null().cast(pa.float64()).to_numpy(zero_copy_only=False)
        values = values[~np.isnan(values)]
        return _compressed(np.hstack([state, [values, np.ones(len(values))]]), self._precision)

    def finish(self, state: np.ndarray) -> list[float] | None:
        means, weights = state
        if not len(means):
            return None
        # A mean is the quantile at the middle of its weight. Extremes have weight 1.
        at = np.cumsum(weights) - weights / 2
        place = np.asarray(self.quantiles) * (weights.sum() - 1) + 0.5
        return [float(value) for value in np.interp(place, at, means)]

    def type_of(self, column: pa.DataType) -> pa.DataType:
        return pa.list_(pa.float64())


def _compressed(centroids: np.ndarray, precision: int) -> np.ndarray:
    """Joins neighbours, few in the tails and many in the middle (the arcsine scale of Dunning's t-digest)."""
    means, weights = centroids[:, np.argsort(centroids[0], kind="stable")]
    if len(means) <= 2 * precision:
        few: np.ndarray = np.stack([means, weights])
        return few
    middle = (np.cumsum(weights) - weights / 2) / weights.sum()
    bins = np.floor(precision * (np.arcsin(2 * middle - 1) / math.pi + 0.5)).astype(np.int64) + 1
    bins[0], bins[-1] = 0, bins[-1] + 1  # the extremes stay exact
    _, index = np.unique(bins, return_inverse=True)
    joined = np.bincount(index, weights)
    made: np.ndarray = np.stack([np.bincount(index, means * weights) / joined, joined])
    return made


def fold_groups(table: pa.Table, rows: pa.ChunkedArray, aggregates: Sequence[FoldedAggregate]) -> list[pa.Array]:
    """The results for each group. rows: for each group the numbers of its rows."""
    lists = one_chunk(rows)
    sizes = pc.list_value_length(lists).to_pylist()
    ordered = table.take(lists.flatten())
    columns = []
    for aggregate in aggregates:
        results, at = [], 0
        for size in sizes:
            part = ordered.slice(at, size)
            at += size
            given = part if aggregate.on is None else one_chunk(part.column(aggregate.on))
            results.append(aggregate.finish(aggregate.add(aggregate.start(), given)))
        kind = None if aggregate.on is None else aggregate.type_of(table.schema.field(aggregate.on).type)
        columns.append(pa.array(results, kind))
    return columns


def _count(state: Counter[Any], column: Any, ignore_nulls: bool) -> None:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_nested(column.type):
        raise TypeError("lists and structs cannot be counted")
    for entry in pc.value_counts(column).to_pylist():
        value = entry["values"]
        if value is None and ignore_nulls:
            continue
        # NaN is not equal to itself: one object stands for all.
        state[_NAN if isinstance(value, float) and math.isnan(value) else value] += entry["counts"]


_NAN = math.nan


def _decoded(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _check_ordered(kind: pa.DataType) -> None:
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if not (numbers or kind in (pa.bool_(), pa.null())):
        raise TypeError("expected numbers")


def _fraction(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"{what} = {value!r}: expected a number from 0 to 1")
    return float(value)
