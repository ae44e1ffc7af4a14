"""The result of a query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trireme import _core
from trireme.data._derived import ComputedSource
from trireme.data._file_source import check_others
from trireme.data._fragment import DataError
from trireme.data._promotion import one_table
from trireme.data._tensors import array_of

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

_ROWS_AT_ONCE = 50_000


def read_sql(sql: str, connection_factory: Callable[[], Any], *, sql_params: Any = None, **others: Any) -> Dataset:
    """The result of a query. `connection_factory()` returns a connection (Python DB API), which is closed afterwards.

    The query runs once, when the dataset is first used, and its result stays in memory: a database guarantees no order.
    """
    if not callable(connection_factory):
        raise _core.ConfigError(
            f"read_sql: connection_factory = {connection_factory!r}: expected a function that opens a connection"
        )
    for name in ("shard_keys", "shard_hash_fn"):  # Ray's options to run parts of the query in parallel
        others.pop(name, None)
    check_others("read_sql", others)
    return ComputedSource("read_sql", partial(_result, sql, connection_factory, sql_params)).dataset()


def _result(sql: str, connect: Callable[[], Any], params: Any) -> pa.Table:
    connection = connect()
    try:
        cursor = connection.cursor()
        try:
            cursor.execute(sql, *([] if params is None else [params]))
        except Exception as error:
            raise DataError(f"read_sql: {sql!r}: {type(error).__name__}: {error}") from error
        if cursor.description is None:
            raise DataError(f"read_sql: {sql!r} returns no rows; expected a SELECT")
        names = [column[0] for column in cursor.description]
        table = one_table(_batches(cursor, names), "read_sql")
        return pa.table({name: pa.nulls(0) for name in names}) if table is None else table.combine_chunks()
    finally:
        connection.close()


def _batches(cursor: Any, names: list[str]) -> Iterator[pa.RecordBatch]:
    while rows := cursor.fetchmany(_ROWS_AT_ONCE):
        columns = [array_of(list(values), name) for name, values in zip(names, zip(*rows, strict=True), strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names=names)
