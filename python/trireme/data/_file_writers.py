"""The formats of files that datasets are written to."""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trireme.data._tensors import numpy_of, rows_of

_ROW_GROUP_ROWS = 131_072
_ROW_GROUP_BYTES = 64 << 20


class Writer(ABC):
    """One file: created with a sink that is open for writing, closed after the last batch."""

    @abstractmethod
    def add(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None:  # noqa: B027
        """Writes buffered rows."""


class ParquetWriter(Writer):
    def __init__(self, sink: Any, schema: pa.Schema, options: Mapping[str, Any]) -> None:
        import pyarrow.parquet as pq

        options = dict(options)
        self._rows: int = options.pop("row_group_size", _ROW_GROUP_ROWS)
        self._schema = schema
        self._writer = pq.ParquetWriter(sink, schema, **options)
        self._held: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        rows = sum(held.num_rows for held in self._held)
        if rows >= self._rows or sum(held.nbytes for held in self._held) >= _ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, self._schema), row_group_size=self._rows)
            self._held = []


class CsvWriter(Writer):
    def __init__(self, sink: Any, schema: pa.Schema, options: Mapping[str, Any]) -> None:
        from pyarrow import csv

        nested = [field for field in schema if pa.types.is_nested(field.type) or _is_tensor(field.type)]
        if nested:
            raise ValueError(
                f"write_csv: column {nested[0].name!r} is {nested[0].type}, which CSV cannot hold; "
                "drop it, or use write_parquet"
            )
        chosen = options.get("write_options") or csv.WriteOptions(**options)
        self._sink = sink
        self._writer = csv.CSVWriter(sink, schema, write_options=chosen)

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_columns > 1 or not batch.column(0).null_count:
            self._writer.write_batch(batch)
            return
        # A null in the only column would be an empty line, which readers skip.
        valid = batch.column(0).is_valid().to_numpy(zero_copy_only=False)
        edges = [0, *(np.flatnonzero(np.diff(valid)) + 1).tolist(), batch.num_rows]
        for start, stop in pairwise(edges):
            if valid[start]:
                self._writer.write_batch(batch.slice(start, stop - start))
            else:
                self._sink.write(b"NULL\n" * (stop - start))

    def close(self) -> None:
        self._writer.close()


class JsonLinesWriter(Writer):
    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def add(self, batch: pa.RecordBatch) -> None:
        for index, field in enumerate(batch.schema):
            if pa.types.is_floating(field.type):  # JSON has no NaN
                column = batch.column(index)
                finite = pc.if_else(pc.is_finite(column), column, pa.scalar(None, field.type))
                batch = batch.set_column(index, field.name, finite)
        lines = (json.dumps(row, default=_plain, ensure_ascii=False) for row in rows_of(batch))
        self._sink.write("".join(f"{line}\n" for line in lines).encode())


class NumpyWriter(Writer):
    def __init__(self, sink: Any, column: str, schema: pa.Schema) -> None:
        self._sink = sink
        self._column = column
        self._parts: list[pa.Array] = []
        self._type = schema.field(column).type

    def add(self, batch: pa.RecordBatch) -> None:
        self._parts.append(batch.column(self._column))

    def close(self) -> None:
        values = numpy_of(pa.chunked_array(self._parts, self._type), self._column)
        if values.dtype == object and len({np.shape(value) for value in values}) == 1:
            values = np.stack(list(values))
        if values.dtype == object:
            raise ValueError(
                f"write_numpy: column {self._column!r} is {self._type}; .npy files hold numbers of one shape"
            )
        np.save(_Stream(self._sink), values, allow_pickle=False)


class _Stream:
    """Adapts an Arrow stream to numpy, which needs a write() method."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def write(self, data: bytes) -> int:
        self._sink.write(data)
        return len(data)


def check_parquet_options(options: Mapping[str, Any]) -> None:
    import pyarrow.parquet as pq

    known = {*inspect.signature(pq.ParquetWriter.__init__).parameters, "row_group_size"}
    check_options("write_parquet", options, known - {"self", "where", "schema", "filesystem", "options"})


def check_csv_options(options: Mapping[str, Any]) -> None:
    from pyarrow import csv

    known = {name for name in dir(csv.WriteOptions) if not name.startswith("_")} - {"validate"}
    check_options("write_csv", options, known | {"write_options"})


def check_options(method: str, options: Mapping[str, Any], known: set[str]) -> None:
    for name in options:
        if name not in known:
            raise TypeError(f"{method}() has no argument {name!r}; of the format it has {', '.join(sorted(known))}")


def _is_tensor(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType)


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, bytes):
        raise TypeError("JSON cannot hold bytes; decode or drop the column, or use write_parquet")
    return str(value)
