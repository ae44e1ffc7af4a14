"""The result of a query."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trireme import _core
from trireme.data._file_source import check_others
from trireme.data._fragment import DataError, Fragment, Source
from trireme.data._memory import TableSource
from trireme.data._tensors import array_of

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

_ROWS_AT_ONCE = 50_000


def read_sql(sql: str, connection_factory: Callable[[], Any], *, sql_params: Any = None, **others: Any) -> Dataset:
    """The result of a query. `connection_factory()` returns a connection (Python DB API), which is closed afterwards.

    The query runs once, when the dataset is first used, and its result stays in memory: a database guarantees no order.
    """
    from trireme.data._dataset import Dataset

    if not callable(connection_factory):
        raise _core.ConfigError(
            f"read_sql: connection_factory = {connection_factory!r}: expected a function that opens a connection"
        )
    for name in ("shard_keys", "shard_hash_fn"):  # Ray's options to run parts of the query in parallel
        others.pop(name, None)
    check_others("read_sql", others)
    return Dataset(SqlSource(sql, connection_factory, sql_params))


class SqlSource(Source):
    """Its pickle contains the result, not the connection."""

    def __init__(self, sql: str, connect: Callable[[], Any], params: Any) -> None:
        self.name = "read_sql"
        self._sql = sql
        self._connect: Callable[[], Any] | None = connect
        self._params = params
        self._result: TableSource | None = None
        self._lock = threading.Lock()

    def fragments(self) -> list[Fragment]:
        return self._answer().fragments()

    def schema(self) -> pa.Schema:
        return self._answer().schema()

    def with_columns(self, columns: Sequence[str]) -> Source:
        return self._answer().with_columns(columns)

    def __getstate__(self) -> dict[str, Any]:
        self._answer()
        return {**self.__dict__, "_lock": None, "_connect": None, "_params": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def _answer(self) -> TableSource:
        with self._lock:
            if self._result is None:
                self._result = TableSource(self._query(), "read_sql")
            return self._result

    def _query(self) -> pa.Table:
        assert self._connect is not None
        connection = self._connect()
        try:
            cursor = connection.cursor()
            try:
                cursor.execute(self._sql, *([] if self._params is None else [self._params]))
            except Exception as error:
                raise DataError(f"read_sql: {self._sql!r}: {type(error).__name__}: {error}") from error
            if cursor.description is None:
                raise DataError(f"read_sql: {self._sql!r} returns no rows; expected a SELECT")
            return _table(cursor)
        finally:
            connection.close()


def _table(cursor: Any) -> pa.Table:
    names = [column[0] for column in cursor.description]
    tables = []
    while rows := cursor.fetchmany(_ROWS_AT_ONCE):
        columns = [array_of(list(values), name) for name, values in zip(names, zip(*rows, strict=True), strict=True)]
        tables.append(pa.Table.from_arrays(columns, names=names))
    if not tables:
        return pa.table({name: pa.nulls(0) for name in names})
    try:
        return pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    except pa.ArrowException as error:
        raise DataError(f"read_sql: the types of a column differ between rows: {error}") from error
