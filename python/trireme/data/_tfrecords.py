"""TFRecord files of tf.train.Example records, without TensorFlow. The core parses them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from trireme import _core
from trireme.data._file_source import FileFragment, FileSource, ReadFilesOptions, read_files
from trireme.data._fragment import DataError
from trireme.data._paths import File

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

_BLOCK = 1 << 20
_TYPES = {str(kind): kind for kind in (pa.binary(), pa.string(), pa.large_binary(), pa.float32(), pa.int64())}


def read_tfrecords(paths: Any, *, schema: pa.Schema | None = None, **options: Unpack[ReadFilesOptions]) -> Dataset:
    """TFRecord files, one column per feature of their tf.train.Example records. Checksums are verified.

    A feature with one value in all of the first records becomes a number (or bytes), any other a list; `schema`
    overrides this.
    """
    if schema is not None:
        for field in schema:
            _type_name(field)
    return read_files("read_tfrecords", paths, partial(TfRecordSource, options=schema), options)


class TfRecordFragment(FileFragment):
    def _batches(self, columns: Sequence[str], row: int) -> Iterator[pa.RecordBatch]:
        wanted = [(name, _type_name(self._body.field(name))) for name in columns]
        reader = _core.TfRecordReader(self._file.shown, wanted, self._body.names, row)
        try:
            with self._file.open_stream() as stream:
                while content := stream.read(_BLOCK):
                    reader.add(content)
                    while (batch := reader.next()) is not None:
                        yield pa.record_batch(batch)
            reader.end()
            while (batch := reader.next()) is not None:
                yield pa.record_batch(batch)
        except RuntimeError as error:
            raise DataError(str(error)) from None


class TfRecordSource(FileSource):
    _fragment = TfRecordFragment

    def _infer(self, file: File) -> pa.Schema:
        if self._options is not None:
            given: pa.Schema = self._options
            return given
        types = _core.TfRecordTypes(file.shown)
        try:
            with file.open_stream() as stream:
                while (content := stream.read(_BLOCK)) and types.add(content):
                    pass
            columns = types.columns()
        except RuntimeError as error:
            raise DataError(str(error)) from None
        return pa.schema([(name, _type_of(kind)) for name, kind in columns])


def _type_of(name: str) -> pa.DataType:
    kind = _TYPES[name.removeprefix("list<").removesuffix(">")]
    return pa.list_(kind) if name.startswith("list<") else kind


def _type_name(field: pa.Field) -> str:
    """The core's name: "int64", "list<string>"."""
    many = pa.types.is_list(field.type)
    kind = str(field.type.value_type if many else field.type)
    if kind not in _TYPES:
        raise _core.ConfigError(
            f"read_tfrecords: schema: column {field.name!r} is {field.type}: features are {', '.join(_TYPES)}, or "
            "lists of them"
        )
    return f"list<{kind}>" if many else kind
