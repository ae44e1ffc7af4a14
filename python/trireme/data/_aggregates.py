"""Aggregates of columns over all rows, batch by batch, or per group. Arrow's functions compute them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from trireme.data._column_ops import require_columns
from trireme.data._promotion import one_table

_DIGITS = pa.decimal128(38, 0)  # holds sums of 64-bit integers


class AggregateFn:
    """One value for a column."""

    function: str  # of pyarrow's group_by; "": none, see _folded_aggregates.py
    verb: str
    needs_column = True

    def __init__(self, on: str | None = None, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        self.on = on
        self.ignore_nulls = ignore_nulls
        self.name = alias_name or f"{self.verb}({on or ''})"

    def options(self) -> Any:
        return pc.ScalarAggregateOptions(skip_nulls=self.ignore_nulls)

    def prepared(self, column: Any) -> Any:
        """Converts the column to the input of the function."""
        return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column

    def start(self) -> Any:
        return None

    def add(self, state: Any, column: Any) -> Any:
        raise NotImplementedError

    def finish(self, state: Any) -> Any:
        return state


class _Sifted(AggregateFn):
    """Nulls are ignored, or make the result null: `state` is the result so far, and whether there was a null."""

    def start(self) -> Any:
        return None, False

    def add(self, state: Any, column: Any) -> Any:
        value, null = state
        null = null or (not self.ignore_nulls and column.null_count > 0)
        one = self.of(column)
        if one is None:
            return value, null
        return (one if value is None else self.joined(value, one)), null

    def of(self, column: Any) -> Any:
        raise NotImplementedError

    def joined(self, first: Any, second: Any) -> Any:
        raise NotImplementedError

    def finish(self, state: Any) -> Any:
        value, null = state
        return None if null or value is None else self.result(value)

    def result(self, value: Any) -> Any:
        return value


class _Counting(AggregateFn):
    """Nulls count, unless they are ignored."""

    def __init__(self, on: str | None = None, ignore_nulls: bool = False, alias_name: str | None = None) -> None:
        super().__init__(on, ignore_nulls, alias_name)

    def options(self) -> Any:
        return pc.CountOptions(mode="only_valid" if self.ignore_nulls else "all")


class Count(_Counting):
    """The number of rows, or of the values of a column that are not null (ignore_nulls=True)."""

    verb = function = "count"

    def start(self) -> int:
        return 0

    def add(self, state: int, column: Any) -> int:
        return state + len(column) - (column.null_count if self.ignore_nulls else 0)


class Sum(_Sifted):
    verb = function = "sum"

    _most = 2**63

    def of(self, column: Any) -> Any:
        self._most = 2**64 if pa.types.is_unsigned_integer(column.type) else 2**63
        return exact_sum(column)

    def joined(self, first: Any, second: Any) -> Any:
        return first + second

    def result(self, value: Any) -> Any:
        if isinstance(value, int) and not -(2**63) <= value < self._most:
            raise OverflowError(_too_large(self.name, value))
        return value


class Min(_Sifted):
    verb = function = "min"

    def of(self, column: Any) -> Any:
        return pc.min(self.prepared(column)).as_py()

    def joined(self, first: Any, second: Any) -> Any:
        return _number(first, second) if first != first or second != second else min(first, second)


class Max(_Sifted):
    verb = function = "max"

    def of(self, column: Any) -> Any:
        return pc.max(self.prepared(column)).as_py()

    def joined(self, first: Any, second: Any) -> Any:
        return _number(first, second) if first != first or second != second else max(first, second)


class AbsMax(Max):
    verb = "abs_max"

    def prepared(self, column: Any) -> Any:
        return pc.abs(super().prepared(column))


class Mean(_Sifted):
    verb = function = "mean"

    def of(self, column: Any) -> Any:
        rows = len(column) - column.null_count
        return (exact_sum(column), rows) if rows else None

    def joined(self, first: Any, second: Any) -> Any:
        return first[0] + second[0], first[1] + second[1]

    def result(self, value: Any) -> Any:
        return float(value[0] / value[1])  # of decimals, too


class Std(_Sifted):
    """Standard deviation; ddof=1 for a sample."""

    verb = "std"
    function = "stddev"

    def __init__(
        self, on: str | None = None, ddof: int = 1, ignore_nulls: bool = True, alias_name: str | None = None
    ) -> None:
        super().__init__(on, ignore_nulls, alias_name)
        self.ddof = ddof

    def options(self) -> Any:
        return pc.VarianceOptions(ddof=self.ddof, skip_nulls=self.ignore_nulls)

    def prepared(self, column: Any) -> Any:
        """64-bit integers as distances from the smallest one: Arrow converts them to floats, which would round them."""
        if pa.types.is_int64(column.type) or pa.types.is_uint64(column.type):
            low, high = pc.min_max(column).as_py().values()
            if low is not None and high - low < 2**53:
                return pc.subtract(column, pa.scalar(low, column.type))
        return column

    def of(self, column: Any) -> Any:
        rows = len(column) - column.null_count
        squares = pc.variance(self.prepared(column), ddof=0).as_py()
        return (rows, exact_sum(column), squares * rows) if rows else None

    def joined(self, first: Any, second: Any) -> Any:
        # Chan et al.: exact even if the mean is far from zero, because sums of integers are.
        (n, total, squares), (m, other_total, other_squares) = first, second
        away = float(other_total * n - total * m) / (n * m)
        return n + m, total + other_total, squares + other_squares + away * away * n * m / (n + m)

    def result(self, value: Any) -> Any:
        rows, _, squares = value
        return math.sqrt(squares / (rows - self.ddof)) if rows > self.ddof else math.nan


def distinct(known: Any, column: Any, name: str) -> Any:
    """The distinct values so far, in order of first appearance."""
    found = pc.unique(plain_floats(column))
    return found if known is None else pc.unique(together([known, found], name))


def together(parts: Sequence[Any], name: str) -> pa.ChunkedArray:
    """The values of all parts; later ones may have wider types."""
    chunks = [chunk for part in parts for chunk in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])]
    table = one_table([pa.record_batch([chunk], [name]) for chunk in chunks], name)
    return pa.chunked_array([], parts[0].type) if table is None else table.column(0)


def exact_sum(column: Any) -> Any:
    """Arrow's sum wraps around: 64-bit integers are added in two halves, which cannot overflow. None: no values."""
    if not (pa.types.is_int64(column.type) or pa.types.is_uint64(column.type)):
        return pc.sum(column).as_py()
    low = pc.sum(pc.bit_wise_and(column, pa.scalar(2**32 - 1, column.type))).as_py()
    high = pc.sum(pc.shift_right(column, pa.scalar(32, column.type))).as_py()
    return None if low is None else high * 2**32 + low


def _too_large(name: str, value: int) -> str:
    return f"{name}: {value} does not fit into a 64-bit integer; cast the column to float64 or decimal first"


class Unique(_Counting):
    """The distinct values, in order of first appearance."""

    verb = "unique"
    function = "distinct"

    def add(self, state: Any, column: Any) -> Any:
        return distinct(state, self.prepared(column), self.name)

    def finish(self, state: Any) -> Any:
        values = [] if state is None else state.to_pylist()
        return [value for value in values if value is not None] if self.ignore_nulls else values


def over_rows(batches: Iterable[pa.RecordBatch], aggregates: Sequence[AggregateFn]) -> dict[str, Any]:
    """Computes all aggregates in one pass; no batch is kept."""
    states = [aggregate.start() for aggregate in aggregates]
    for batch in batches:
        for index, aggregate in enumerate(aggregates):
            column = _input(batch, aggregate)
            try:
                states[index] = aggregate.add(states[index], column)
            except (pa.ArrowException, TypeError) as error:
                raise _unfit(aggregate, getattr(column, "type", None), error) from error
    return {aggregate.name: aggregate.finish(state) for aggregate, state in zip(aggregates, states, strict=True)}


def over_groups(table: pa.Table, keys: Sequence[str], aggregates: Sequence[AggregateFn]) -> pa.Table:
    """One row for each group, sorted by the keys; nulls are a group, too, and sort last."""
    given = table.select(list(keys))
    asked: list[tuple[Any, str, Any]] = []
    counts: list[tuple[Any, str, Any]] = []
    digits: dict[int, pa.DataType] = {}  # the types of columns that are summed as decimals
    folded = [aggregate for aggregate in aggregates if not aggregate.function]
    if folded:
        return _with_folded(table, keys, aggregates, folded)
    for index, aggregate in enumerate(aggregates):
        if aggregate.on is None:
            asked.append(([], "count_all", None))
            continue
        column = table.column(aggregate.on)
        try:
            column = aggregate.prepared(column)
            exact = _needs_digits(aggregate, column)
            cast = exact and pa.types.is_integer(column.type)
            given = given.append_column(f"__{index}", column.cast(_DIGITS) if cast else column)
            asked.append((f"__{index}", "sum" if exact else aggregate.function, aggregate.options()))
            if exact:
                digits[index] = column.type
                counts.append((f"__{index}", "count", None))
        except pa.ArrowException as error:
            raise _unfit(aggregate, column.type, error) from error
    given = grouped_by_value(given, keys)
    try:
        made = given.group_by(list(keys), use_threads=False).aggregate([*asked, *counts])
        names = [*keys, *(aggregate.name for aggregate in aggregates)]
        for rows, (index, kind) in zip(made.columns[len(names) :], digits.items(), strict=True):
            at = len(keys) + index
            results = _from_digits(aggregates[index], made.column(at), rows, kind)
            made = made.set_column(at, names[at], results)
        made = made.select(range(len(names))).rename_columns(names)
        return made.sort_by([(key, "ascending") for key in keys])
    except pa.ArrowException as error:
        kinds = ", ".join(f"{field.name}: {field.type}" for field in table.schema)
        raise ValueError(
            f"groupby({', '.join(keys)}): cannot compute {', '.join(one.name for one in aggregates)} for {kinds}: "
            f"{str(error).splitlines()[0]}"
        ) from error


def _with_folded(
    table: pa.Table, keys: Sequence[str], aggregates: Sequence[AggregateFn], folded: Sequence[Any]
) -> pa.Table:
    """Arrow groups the row numbers, too, from which the other aggregates are computed."""
    from trireme.data._folded_aggregates import fold_groups

    numbers = _RowNumbers("__row")
    plain = [aggregate for aggregate in aggregates if aggregate.function]
    numbered = table.append_column("__row", pa.array(range(table.num_rows), pa.int64()))
    made = over_groups(numbered, keys, [*plain, numbers])
    try:
        columns = dict(zip(folded, fold_groups(table, made.column(numbers.name), folded), strict=True))
    except (pa.ArrowException, TypeError) as error:
        names = ", ".join(one.name for one in folded)
        raise ValueError(f"groupby({', '.join(keys)}): cannot compute {names}: {error}") from error
    result = made.select(list(keys))
    for one in aggregates:
        result = result.append_column(one.name, columns[one] if one in columns else made.column(one.name))
    return result


def needed_columns(aggregates: Sequence[AggregateFn]) -> list[str] | None:
    """The columns to read; None: all."""
    if any(one.on is None and not one.function for one in aggregates):
        return None
    return list(dict.fromkeys(one.on for one in aggregates if one.on is not None))


def grouped_by_value(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The keys as Arrow's hash tables compare them: dictionaries as their values, -0.0 as 0.0."""
    for key in keys:
        index, column = table.schema.get_field_index(key), table.column(key)
        if pa.types.is_dictionary(column.type):
            table = table.set_column(index, key, column.cast(column.type.value_type))
        else:
            table = table.set_column(index, key, plain_floats(column))
    return table


def plain_floats(column: Any) -> Any:
    """Floats with one zero and one NaN, as Arrow's hash tables compare bits; other columns unchanged."""
    if not pa.types.is_floating(column.type):
        return column
    nan = pa.scalar(math.nan, column.type)
    return pc.if_else(pc.is_nan(column), nan, pc.add(column, pa.scalar(0.0, column.type)))


def _needs_digits(aggregate: AggregateFn, column: Any) -> bool:
    """Whether Arrow's result would not be exact: sums of integers wrap around, means are sums of floats, and those of
    decimals are rounded to the decimals' places."""
    if isinstance(aggregate, Mean) and pa.types.is_decimal(column.type):
        return True
    if not isinstance(aggregate, (Sum, Mean)) or not pa.types.is_integer(column.type):
        return False
    ends = [value for value in pc.min_max(column).as_py().values() if value is not None]
    return max(map(abs, ends), default=0) * len(column) >= 2**53


def _from_digits(aggregate: AggregateFn, sums: Any, rows: Any, kind: pa.DataType) -> Any:
    """The results from exact sums, which are decimals."""
    if isinstance(aggregate, Mean):
        return pc.divide(sums.cast(pa.float64()), rows.cast(pa.float64()))
    least, most = (0, 2**64 - 1) if pa.types.is_unsigned_integer(kind) else (-(2**63), 2**63 - 1)
    ends = pc.min_max(sums).as_py()
    for value in (ends["min"], ends["max"]):
        if value is not None and not least <= value <= most:
            raise OverflowError(_too_large(aggregate.name, int(value)))
    return sums.cast(pa.uint64() if least == 0 else pa.int64())


def aggregates_on(
    kind: Any, on: str | Sequence[str] | None, schema: pa.Schema, besides: Sequence[str] = (), **options: Any
) -> list[AggregateFn]:
    """One aggregate for each of the columns; None: for all numeric columns."""
    if on is None:
        names = [field.name for field in schema if _is_number(field.type) and field.name not in besides]
        if not names:
            raise ValueError(f"{kind.verb}: no column is numeric; the columns are {', '.join(schema.names)}")
    else:
        names = [on] if isinstance(on, str) else list(on)
    require_columns(names, schema, kind.verb)
    return [kind(name, **options) for name in names]


def check_aggregates(aggregates: Sequence[Any], schema: pa.Schema) -> None:
    if not aggregates:
        raise ValueError("aggregate: pass at least one aggregate, for example Mean('x')")
    for one in aggregates:
        if not isinstance(one, AggregateFn):
            raise TypeError(
                f"aggregate: {one!r} is not an aggregate; pass for example trireme.data.aggregate.Mean('x')"
            )
        if one.on is None and not isinstance(one, Count) and one.needs_column:
            raise ValueError(f"aggregate: {type(one).__name__}() needs a column")
        if one.on is not None:
            require_columns([one.on], schema, one.verb)


def _input(batch: pa.RecordBatch, aggregate: AggregateFn) -> Any:
    if aggregate.on is not None:
        return batch.column(aggregate.on)
    return _Rows(batch.num_rows) if aggregate.function else pa.Table.from_batches([batch])


class _RowNumbers(AggregateFn):
    verb = function = "list"

    def options(self) -> Any:
        return None


def _number(first: Any, second: Any) -> Any:
    """The one that is not NaN, if there is one: batches may have only NaN."""
    return second if first != first else first


class _Rows:
    """Replaces a column if only the number of rows matters."""

    null_count = 0
    type = None

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return self._rows


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _unfit(aggregate: AggregateFn, kind: Any, error: Exception) -> ValueError:
    return ValueError(
        f"{aggregate.name}: column {aggregate.on!r} is {kind}, which has no {aggregate.verb}: "
        f"{str(error).splitlines()[0]}"
    )


_Result = TypeVar("_Result")


class Reductions(Generic[_Result]):
    """The aggregates of one column, of several, or (default) of all numeric columns.

    Of a dataset: the value, or a dict of them; None: no values. Of groups: columns such as "sum(x)".
    """

    def sum(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> _Result:
        return self._on(Sum, on, ignore_nulls=ignore_nulls)

    def min(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> _Result:
        return self._on(Min, on, ignore_nulls=ignore_nulls)

    def max(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> _Result:
        return self._on(Max, on, ignore_nulls=ignore_nulls)

    def mean(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> _Result:
        return self._on(Mean, on, ignore_nulls=ignore_nulls)

    def std(self, on: str | Sequence[str] | None = None, ddof: int = 1, ignore_nulls: bool = True) -> _Result:
        """The standard deviation; ddof=1: of a sample."""
        return self._on(Std, on, ddof=ddof, ignore_nulls=ignore_nulls)

    def _on(self, kind: type[AggregateFn], on: str | Sequence[str] | None, **options: Any) -> _Result:
        raise NotImplementedError
