"""The operations of map(), map_batches(), flat_map(), filter() and add_column() with a user function."""

from __future__ import annotations

import contextlib
import inspect
import operator
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trireme._core import count_of
from trireme.data._column_ops import one_batch
from trireme.data._cut import exact_batches, rows_text
from trireme.data._formats import check_format, in_format
from trireme.data._fragment import DataError, FunctionOp, Where
from trireme.data._tensors import array_of, as_table, batch_of_rows, columns_of, is_frame, rows_from, rows_of

_AUTO_ROWS = 1024
_BATCHES = "a dict of arrays or lists, a pandas DataFrame, a pyarrow Table or RecordBatch, or a generator of those"


@dataclass(frozen=True)
class TaskPoolStrategy:
    """compute=: run functions in `size` processes per worker."""

    size: int | None = None


@dataclass(frozen=True)
class ActorPoolStrategy:
    """compute=: run instances of a class in at most `max_size` processes per worker."""

    size: int | None = None
    min_size: int | None = None
    max_size: int | None = None
    initial_size: int | None = None
    max_tasks_in_flight_per_actor: int | None = None
    max_concurrent_calls_per_actor: int | None = None
    enable_true_multi_threading: bool | None = None


class Function(FunctionOp):
    """A function or a class, its arguments, and errors that name the rows on which it failed.

    batch_size: the exact number of rows per call; None: a record batch of any size. With `by_rows`, every row is a
    separate call.
    """

    verb: str  # "map"
    by_rows = True
    takes_generators = False
    batch_size: int | None = None
    _ready: Any

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        fn_args: Iterable[Any] | None = None,
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Iterable[Any] | None = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        concurrency: int | tuple[int, ...] | None = None,
        compute: Any = None,
    ) -> None:
        self.fn = fn
        self.name = f"{self.verb}({name_of(fn)})"
        self._args = tuple(fn_args or ())
        self._kwargs = dict(fn_kwargs or {})
        self._constructor_args = tuple(fn_constructor_args or ())
        self._constructor_kwargs = dict(fn_constructor_kwargs or {})
        self.concurrency = _processes_asked(self.name, concurrency, compute)
        self._check()
        self._begin()

    def __call__(self, batches: Iterator[pa.RecordBatch], where: Where) -> Iterator[pa.RecordBatch]:
        row = where.row
        for batch in exact_batches(batches, self.batch_size) if self.batch_size else batches:
            if batch.num_rows:
                yield from self.apply(batch, Where(where.fragment, row))
            row += batch.num_rows

    @abstractmethod
    def apply(self, batch: pa.RecordBatch, where: Where) -> Iterator[pa.RecordBatch]:
        """The output for one batch of the right size, which is not empty. `where` is the position of its first row."""

    def prepare(self) -> Callable[..., Any]:
        """The function, or the instance of the class, created once in each process."""
        if not isinstance(self.fn, type):
            return self.fn
        with self._one_at_a_time:
            if self._ready is None:
                try:
                    self._ready = self.fn(*self._constructor_args, **self._constructor_kwargs)
                except Exception as error:
                    raise DataError(f"{self.name}: {self.fn.__name__}() failed: {_text(error)}") from error
            made: Callable[..., Any] = self._ready
            return made

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("_ready", "_one_at_a_time")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def _begin(self) -> None:
        self._ready = None
        # Functions are called by one thread at a time, as in function processes, even if several threads read ahead.
        self._one_at_a_time = threading.RLock()

    def _check(self) -> None:
        """Before anything starts: whether the function accepts its arguments."""
        fn: Any = self.fn
        call: Any = fn
        if not callable(fn):
            raise TypeError(f"{self.verb}(fn): expected a function or a class, got {type(fn).__name__}: {fn!r}")
        what = "row" if self.by_rows else "batch"
        given = (object(), *self._args), self._kwargs
        if isinstance(fn, type):
            call = getattr(fn, "__call__", None)  # noqa: B004  of its instances, not of the class
            if not inspect.isfunction(call):
                raise TypeError(f"{self.name}: the class {fn.__name__} has no __call__ method to call with each {what}")
            self._bind(fn, "is constructed", self._constructor_args, self._constructor_kwargs)
            self._bind(call, f"is called with a {what}", (object(), *given[0]), given[1])
        else:
            if self._constructor_args or self._constructor_kwargs:
                raise ValueError(
                    f"{self.name}: fn_constructor_args and fn_constructor_kwargs are for classes, but {name_of(fn)} is "
                    "not a class; use fn_args and fn_kwargs for a function"
                )
            self._bind(fn, f"is called with a {what}", *given)
            call = fn if inspect.isroutine(fn) else getattr(fn, "__call__", fn)  # noqa: B004
        if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call):
            raise TypeError(f"{self.name}: {name_of(fn)} is a coroutine; it must be a plain function or a generator")
        if inspect.isgeneratorfunction(call) and not self.takes_generators:
            raise TypeError(
                f"{self.name}: {name_of(fn)} is a generator; only map_batches and flat_map accept generators"
            )

    def _bind(self, fn: Callable[..., Any], how: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        try:
            signature = inspect.signature(fn)
        except (ValueError, TypeError):  # some C functions have none
            return
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            names = ("fn_args", "fn_kwargs", "fn_constructor_args", "fn_constructor_kwargs")
            values = (getattr(self, name.removeprefix("fn")) for name in names)
            given = ", ".join(f"{name}={value!r}" for name, value in zip(names, values, strict=True) if value)
            raise ValueError(
                f"{self.name}: {name_of(self.fn)}{signature} {how}{f' and {given}' if given else ''}: {error}"
            ) from None

    @contextlib.contextmanager
    def _valid(self, batch: pa.RecordBatch, where: Where, what: str = "") -> Iterator[None]:
        try:
            yield
        except DataError as error:
            raise DataError(f"{self.name} on {rows_text(where, batch.num_rows)} returned {what}{error}") from error

    def _failed(self, where: str, error: Exception) -> DataError:
        hint = ""
        if not self.by_rows and "read-only" in str(error):
            hint = f". The batch is not a copy: use {self.verb}(..., zero_copy_batch=False) to pass a copy"
        return DataError(f"{self.name} failed on {where}: {_text(error)}{hint}")


class _ByRows(Function):
    def _results(self, rows: Iterable[dict[str, Any]], where: Where) -> Iterator[tuple[int, Any]]:
        """The result of the function for each row, with the row's number in the fragment."""
        call = self.prepare()
        for row, values in enumerate(rows, where.row):
            try:
                with self._one_at_a_time:
                    result = call(values, *self._args, **self._kwargs)
            except Exception as error:
                raise self._failed(_row(where, row), error) from error
            yield row, result

    def _returned(self, value: Any, what: str, where: Where, row: int) -> DataError:
        return DataError(f"{self.name} must return {what}; for {_row(where, row)} it returned {_shown(value)}")


class Map(_ByRows):
    """Returns one row, a dict, for each row."""

    verb = "map"

    def apply(self, batch: pa.RecordBatch, where: Where) -> Iterator[pa.RecordBatch]:
        rows: list[Mapping[str, Any]] = []
        given = columns_of(batch)
        for row, result in self._results(rows_from(given), where):
            if not isinstance(result, Mapping):
                raise self._returned(result, "a dict with the columns of a row", where, row)
            rows.append(result)
        with self._valid(batch, where):
            made = batch_of_rows(rows, _unchanged(rows, batch, given))
        yield made


class FlatMap(_ByRows):
    """Returns any number of rows for each row: a list of dicts, or a generator of them."""

    verb = "flat_map"
    keeps_rows = False
    takes_generators = True

    def apply(self, batch: pa.RecordBatch, where: Where) -> Iterator[pa.RecordBatch]:
        rows: list[Mapping[str, Any]] = []
        for row, result in self._results(rows_of(batch), where):
            if isinstance(result, (Mapping, str, bytes)) or not isinstance(result, Iterable):
                raise self._returned(result, "a list of dicts, or a generator of them", where, row)
            rows += self._rows_of(result, where, row)
        if rows:
            with self._valid(batch, where):
                made = batch_of_rows(rows)
            yield made

    def _rows_of(self, result: Iterable[Any], where: Where, row: int) -> list[Mapping[str, Any]]:
        try:
            with self._one_at_a_time:  # a generator runs here
                made = list(result)
        except Exception as error:
            raise self._failed(_row(where, row), error) from error
        for value in made:
            if not isinstance(value, Mapping):
                raise self._returned(value, "dicts", where, row)
        return made


class FilterRows(_ByRows):
    """The rows for which the function returns True, unchanged."""

    verb = "filter"
    keeps_rows = False

    def apply(self, batch: pa.RecordBatch, where: Where) -> Iterator[pa.RecordBatch]:
        mask = np.empty(batch.num_rows, bool)
        for row, result in self._results(rows_of(batch), where):
            try:
                mask[row - where.row] = bool(result)
            except Exception:  # an array has no truth value
                raise self._returned(result, "True or False", where, row) from None
        if mask.any():
            yield batch if mask.all() else batch.filter(pa.array(mask))

    def schema(self, schema: pa.Schema) -> pa.Schema:
        return schema


class _ByBatches(Function):
    by_rows = False

    def __init__(self, fn: Callable[..., Any], *, batch_format: str | None, zero_copy_batch: bool, **more: Any) -> None:
        check_format(batch_format)
        self._format = batch_format
        self._copies = not zero_copy_batch
        super().__init__(fn, **more)

    def _given(self, batch: pa.RecordBatch) -> Any:
        given = in_format((batch, {}), self._format)
        if self._copies and isinstance(given, dict):
            return {name: values if values.flags.writeable else values.copy() for name, values in given.items()}
        if self._copies and self._format == "pandas":
            return given.copy()
        return given

    def _result(self, batch: pa.RecordBatch, where: Where) -> Any:
        call = self.prepare()
        given = self._given(batch)
        try:
            with self._one_at_a_time:
                return call(given, *self._args, **self._kwargs)
        except Exception as error:
            raise self._failed(rows_text(where, batch.num_rows), error) from error


class MapBatches(_ByBatches):
    """Returns batches for each batch. Unless the user sets it, a trial call determines whether it keeps the rows.

    Once `keeps_rows` is True, every batch is checked: positions in the dataset depend on it.
    """

    verb = "map_batches"
    takes_generators = True

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        batch_size: int | str | None = None,
        batch_format: str | None = "default",
        zero_copy_batch: bool = True,
        udf_modifying_row_count: bool | None = None,
        **more: Any,
    ) -> None:
        if batch_size in ("auto", "default"):
            batch_size = _AUTO_ROWS
        if isinstance(batch_size, bool) or not isinstance(batch_size, int | None) or batch_size == 0:
            raise ValueError(f"map_batches(batch_size={batch_size!r}): expected a number of rows, 'auto' or None")
        if batch_size is not None and batch_size < 0:
            raise ValueError(f"map_batches(batch_size={batch_size}): expected a positive number of rows")
        self.batch_size = batch_size
        self.keeps_rows = None if udf_modifying_row_count is None else not udf_modifying_row_count
        super().__init__(fn, batch_format=batch_format, zero_copy_batch=zero_copy_batch, **more)

    def apply(self, batch: pa.RecordBatch, where: Where) -> Iterator[pa.RecordBatch]:
        made = 0
        for result in self._results(batch, where):
            for out in self._as_batches(result, batch, where):
                made += out.num_rows
                if out.num_rows or _has_types(out.schema):
                    yield out
        if self.keeps_rows and made != batch.num_rows:
            raise DataError(
                f"{self.name} returned {count_of(made, 'row')} for {batch.num_rows}, {rows_text(where, batch.num_rows)}"
                ", but is expected to keep the number of rows; "
                "use map_batches(..., udf_modifying_row_count=True)"
            )

    def _results(self, batch: pa.RecordBatch, where: Where) -> Iterator[Any]:
        result = self._result(batch, where)
        if not isinstance(result, Iterator):
            yield result
            return
        while True:
            try:
                with self._one_at_a_time:
                    one = next(result)
            except StopIteration:
                return
            except Exception as error:
                raise self._failed(rows_text(where, batch.num_rows), error) from error
            yield one

    def _as_batches(self, result: Any, batch: pa.RecordBatch, where: Where) -> list[pa.RecordBatch]:
        if isinstance(result, pa.RecordBatch):
            return [result]
        with self._valid(batch, where):
            table = None if isinstance(result, list) else as_table(result)
        if table is None:
            on = rows_text(where, batch.num_rows)
            raise DataError(f"{self.name} must return {_BATCHES}; for {on} it returned {_shown(result)}")
        if isinstance(result, Mapping) or is_frame(result):
            return [_with_nulls(one_batch(table), batch)]
        batches: list[pa.RecordBatch] = table.combine_chunks().to_batches()
        return batches or [one_batch(table)]  # keeps the types


class AddColumn(_ByBatches):
    """Adds or replaces a column: an array, a list or a Series with a value for each row."""

    verb = "add_column"

    def __init__(self, col: str, fn: Callable[..., Any], *, batch_format: str | None = "pandas", **more: Any) -> None:
        if not isinstance(col, str):
            raise TypeError(f"add_column(col={col!r}): expected the name of a column, got {type(col).__name__}")
        super().__init__(fn, batch_format=batch_format, zero_copy_batch=more.pop("zero_copy_batch", True), **more)
        self._column = col
        self.name = f"add_column({col!r}, {name_of(fn)})"

    def apply(self, batch: pa.RecordBatch, where: Where) -> Iterator[pa.RecordBatch]:
        result = self._result(batch, where)
        if isinstance(result, (bool, int, float, str, bytes, np.generic, pa.Scalar)):
            result = pa.repeat(result.item() if isinstance(result, np.generic) else result, batch.num_rows)
        with self._valid(batch, where, "an invalid column: "):
            column = array_of(result, self._column)
        if len(column) != batch.num_rows:
            values, rows = count_of(len(column), "value"), count_of(batch.num_rows, "row")
            raise DataError(f"{self.name} returned {values} for {rows}, {rows_text(where, batch.num_rows)}")
        columns = {**dict(zip(batch.schema.names, batch.columns, strict=True)), self._column: column}
        yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def name_of(fn: Any) -> str:
    """The name for messages: double, Scaler.apply, <lambda>."""
    fn = getattr(fn, "func", fn)  # of a functools.partial
    name: str = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    return name.rpartition("<locals>.")[2]


def _processes_asked(name: str, concurrency: Any, compute: Any) -> int | None:
    """The maximum that `concurrency` or `compute` allows; None if neither is set."""
    if compute is not None and concurrency is not None:
        raise ValueError(f"{name}: compute={compute!r} and concurrency={concurrency!r}: set only one of them")
    if compute is not None:
        if not (hasattr(compute, "size") or hasattr(compute, "max_size")):
            raise TypeError(f"{name}: compute={compute!r}: expected a TaskPoolStrategy or an ActorPoolStrategy")
        sizes = [getattr(compute, key, None) for key in ("size", "max_size", "initial_size", "min_size")]
        concurrency = next((size for size in sizes if size is not None), None)
    most = concurrency[1] if isinstance(concurrency, (tuple, list)) and len(concurrency) in (2, 3) else concurrency
    if most is None:
        return None
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ValueError(
            f"{name}: concurrency={concurrency!r}: expected a number of processes, (min, max) or (min, max, initial)"
        )
    return most


def _unchanged(
    rows: Sequence[Mapping[str, Any]], batch: pa.RecordBatch, given: Mapping[str, list[Any]]
) -> dict[str, pa.Array]:
    """The columns whose values the function has returned as they were. They keep their types, which values alone do not
    show: the width of numbers, the type of a column without values."""
    kept: dict[str, pa.Array] = {}
    for field in batch.schema:
        mutable = pa.types.is_nested(field.type) or isinstance(field.type, pa.BaseExtensionType)
        if not mutable and all(map(operator.is_, (row.get(field.name, rows) for row in rows), given[field.name])):
            kept[field.name] = batch.column(field.name)
    return kept


def _with_nulls(made: pa.RecordBatch, given: pa.RecordBatch) -> pa.RecordBatch:
    """Integers have no null in numpy and pandas: functions receive NaN for it, and return NaN."""
    for index, field in enumerate(made.schema):
        before = given.column(field.name) if field.name in given.schema.names else None
        if before is None or not before.null_count or not pa.types.is_integer(before.type):
            continue
        if pa.types.is_floating(field.type):
            column = made.column(index)
            nulled = pc.if_else(pc.is_nan(column), pa.scalar(None, field.type), column)
            with contextlib.suppress(pa.ArrowInvalid):  # there are fractions: it stays a float
                made = made.set_column(index, field.name, nulled.cast(before.type))
    return made


def _row(where: Where, row: int) -> str:
    return f"row {row} of {where.fragment}"


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _shown(value: Any) -> str:
    if value is None:
        return "None"
    text = repr(value)
    return f"{_article(type(value).__name__)}: {text if len(text) <= 80 else text[:77] + '...'}"


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0].lower() in "aeiou" else f"a {kind}"


def _has_types(schema: pa.Schema) -> bool:
    """False if a column, such as a list without values, has no type."""
    return len(schema) > 0 and not any(pa.types.is_null(field.type) for field in schema)
