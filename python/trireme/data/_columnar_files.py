"""ORC and Avro files."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from trireme._extras import import_extra
from trireme.data._blocks import skipped
from trireme.data._column_ops import no_rows
from trireme.data._datasource import DecodedFiles
from trireme.data._file_source import (
    FileFragment,
    FileSource,
    Listing,
    Placed,
    ReadFilesOptions,
    check_same,
    in_threads,
    read_files,
    unpacked_size,
)
from trireme.data._fragment import DataError, Fragment
from trireme.data._paths import File

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

_AVRO_ROWS = 1024


def read_orc(paths: Any, *, columns: Sequence[str] | None = None, **options: Unpack[ReadFilesOptions]) -> Dataset:
    """ORC files. A fragment is a stripe; only the needed columns are read."""

    def source(listing: Listing, on_bad_file: str) -> FileSource:
        found = OrcSource(listing, on_bad_file)
        return found if columns is None else found.with_columns(columns)

    return read_files("read_orc", paths, source, options, extensions=("orc",), partitioning="hive")


class OrcSource(FileSource):
    def _infer(self, file: File) -> pa.Schema:
        with _orc(file) as orc:
            return orc.schema

    def _plan(self, files: Sequence[Placed], body: pa.Schema) -> list[list[Fragment]]:
        names = self.schema().names
        first = self._listing.files()[0]

        def fragments(entry: Placed) -> list[Fragment]:
            file, constants = entry
            with _orc(file) as orc:
                check_same(self.name, file, orc.schema, first, body)
                stripes, rows = orc.nstripes, orc.nrows
            # ORC stores the number of rows of a stripe, but pyarrow does not return it.
            known, size = rows if stripes == 1 else None, unpacked_size(file) // max(stripes, 1)
            return [
                OrcFragment(file, body, constants, names, stripe, f"stripe {stripe}", known, size)
                for stripe in range(stripes)
            ]

        return in_threads(fragments, files)


class OrcFragment(FileFragment):
    """The option is the number of the stripe."""

    def _batches(self, columns: Sequence[str], row: int) -> Iterator[pa.RecordBatch]:
        with _orc(self._file) as orc:
            names = list(columns) or self._body.names[:1]
            yield from skipped([orc.read_stripe(self._options, columns=names)], row)


@contextlib.contextmanager
def _orc(file: File) -> Iterator[Any]:
    """An open ORC file. Errors name it."""
    from pyarrow import orc

    with file.open_file() as handle:
        try:
            opened = orc.ORCFile(handle)
        except (pa.ArrowException, OSError) as error:
            if file.remote and isinstance(error, OSError):
                file.check()  # raises if the store does not respond
            raise DataError(f"{file.shown} is not a readable ORC file: {error}") from error
        yield opened


def read_avro(paths: Any, **options: Unpack[ReadFilesOptions]) -> Dataset:
    """Avro files, with the types of their schema. A fragment is a file. Needs trireme[avro]."""
    import_extra("read_avro", "fastavro", "avro")
    return read_files(
        "read_avro",
        paths,
        lambda listing, on_bad_file: AvroSource(listing, on_bad_file, decode_avro),
        options,
        extensions=("avro",),
    )


class AvroSource(DecodedFiles):
    def _infer(self, file: File) -> pa.Schema:
        for batch in decode_avro(file):
            return batch.schema
        raise AssertionError("decode_avro() yields at least one batch")


def decode_avro(file: File) -> Iterator[pa.RecordBatch]:
    """At least one batch, which may be empty: the schema is known."""
    fastavro = import_extra("read_avro", "fastavro", "avro")
    with file.open_stream() as stream:
        if stream.read(4) != b"Obj\x01":
            raise DataError(f"{file.shown} is not a readable Avro file: it does not begin with 'Obj'")
    with file.open_stream() as stream:
        records = fastavro.reader(stream)
        schema = _arrow_schema(records.writer_schema, file)
        empty = True
        while rows := list(itertools.islice(records, _AVRO_ROWS)):
            empty = False
            yield pa.RecordBatch.from_pylist(rows, schema)
        if empty:
            yield no_rows(schema)


_AVRO_TYPES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_AVRO_LOGICAL_TYPES = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}


def _arrow_schema(schema: Any, file: File) -> pa.Schema:
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        raise DataError(
            f"{file.shown}: the top of the schema is {schema!r}; expected a record, whose fields are columns"
        )
    return pa.schema(list(_arrow_type(schema, {}, file.shown)))


def _arrow_type(schema: Any, known: dict[str, pa.DataType], where: str) -> pa.DataType:
    if isinstance(schema, list):  # a union
        others = [member for member in schema if member != "null"]
        if len(others) > 1:
            raise DataError(f"{where}: a union of {others}: a column has one type and null")
        return _arrow_type(others[0], known, where) if others else pa.null()
    if isinstance(schema, str):
        return known[schema] if schema in known else _AVRO_TYPES[schema]
    kind, logical = schema["type"], schema.get("logicalType")
    if logical in _AVRO_LOGICAL_TYPES:
        return _AVRO_LOGICAL_TYPES[logical]
    if logical == "decimal":
        found: pa.DataType = pa.decimal128(schema["precision"], schema.get("scale", 0))
    elif kind == "record":
        fields = [
            (field["name"], _arrow_type(field["type"], known, f"{where}, {field['name']}"))
            for field in schema["fields"]
        ]
        found = pa.struct(fields)
    elif kind == "array":
        found = pa.list_(_arrow_type(schema["items"], known, where))
    elif kind == "map":
        found = pa.map_(pa.string(), _arrow_type(schema["values"], known, where))
    else:
        found = _arrow_type(kind, known, where)
    if "name" in schema:
        known[schema["name"]] = found
    return found
