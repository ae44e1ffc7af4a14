"""Sinks for images, TFRecord files, WebDataset shards and databases."""

from __future__ import annotations

import io
import json
import struct
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from trireme import _core
from trireme.data._datasink import Datasink, RowBasedFileDatasink, TaskContext
from trireme.data._file_writers import Writer
from trireme.data._images import pillow
from trireme.data._tensors import numpy_of, rows_of

_SQL_ROWS = 1000


class ImageDatasink(RowBasedFileDatasink):
    """One image file per row."""

    def __init__(self, path: Any, column: str, file_format: str, **options: Any) -> None:
        super().__init__(path, file_format=file_format, **options)
        self._column = column
        known = {extension.lstrip(".") for extension in pillow().registered_extensions()}
        if file_format.lower() not in known:
            raise _core.ConfigError(f"write_images: file_format = {file_format!r}: Pillow has no such format")

    def write_row_to_file(self, row: dict[str, Any], file: pa.NativeFile) -> None:
        Image = pillow()
        kind = Image.registered_extensions()[f".{str(self.file_format).lower()}"]
        content = io.BytesIO()  # formats such as TIFF seek
        image_of(row[self._column], f"write_images: column {self._column!r}").save(content, format=kind)
        file.write(content.getvalue())


def image_of(value: Any, where: str) -> Any:
    pixels = np.asarray(value)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    try:
        return pillow().fromarray(pixels)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {pixels.dtype} of shape {pixels.shape} is not an image: {error}") from error


class TfRecordWriter(Writer):
    """A TFRecord file of tf.train.Example records."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def add(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        features = [_features(batch.column(index), name) for index, name in enumerate(names)]
        keys = [_field(1, name.encode()) for name in names]
        for row in zip(*features, strict=True):
            given = ((key, value) for key, value in zip(keys, row, strict=True) if value is not None)
            entries = b"".join(_field(1, key + _field(2, value)) for key, value in given)
            self._sink.write(_framed(_field(1, entries)))


def _features(column: pa.Array, name: str) -> list[bytes | None]:
    """The tf.train.Feature of each row; None for null."""
    kind = column.type
    if isinstance(kind, pa.FixedShapeTensorType):
        values: Sequence[Any] = [tensor.ravel() for tensor in numpy_of(column, name)]
        kind = kind.value_type
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        values, kind = column.to_pylist(), kind.value_type
    else:
        values = [None if value is None else [value] for value in column.to_pylist()]
    encode = _encoder(kind, name)
    return [None if value is None else encode(value) for value in values]


def _encoder(kind: pa.DataType, name: str) -> Callable[[Any], bytes]:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return lambda values: _field(1, b"".join(_field(1, value.encode()) for value in values))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return lambda values: _field(1, b"".join(_field(1, value) for value in values))
    if pa.types.is_floating(kind):
        return lambda values: _field(2, _field(1, np.asarray(values, "<f4").tobytes()))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return lambda values: _field(3, _field(1, b"".join(_varint(int(value)) for value in values)))
    raise ValueError(
        f"write_tfrecords: column {name!r} has values of type {kind}; features are integers, floats, bytes and text, "
        "and lists of them"
    )


def _framed(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return length + _masked_crc(length) + record + _masked_crc(record)


def _masked_crc(content: bytes) -> bytes:
    crc = _core.crc32c(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _varint(number: int) -> bytes:
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"write_tfrecords: {number} does not fit into int64")
    number &= 2**64 - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


class WebDatasetWriter(Writer):
    """A tar file: a column is a suffix, "__key__" the name of the sample. numbers: names of samples without one."""

    def __init__(self, sink: Any, encoder: Any, numbers: Iterator[int]) -> None:
        self._tar = tarfile.open(fileobj=sink, mode="w|")  # noqa: SIM115
        self._encoder = encoder
        self._numbers = numbers

    def add(self, batch: pa.RecordBatch) -> None:
        for row in rows_of(batch):
            sample = self._encoder(row) if callable(self._encoder) else row
            key = sample["__key__"] if "__key__" in sample else f"{next(self._numbers):09}"
            for suffix, value in sample.items():
                if suffix.startswith("__") or value is None:
                    continue
                content = _encoded(suffix, value) if self._encoder is True else value
                if not isinstance(content, bytes):
                    raise ValueError(
                        f"write_webdataset: sample {key!r}: .{suffix} is {type(content).__name__}, expected bytes"
                    )
                about = tarfile.TarInfo(f"{key}.{suffix}")
                about.size = len(content)
                self._tar.addfile(about, io.BytesIO(content))

    def close(self) -> None:
        self._tar.close()


def check_encoder(encoder: Any) -> None:
    if not callable(encoder) and encoder not in (True, False, None):
        raise _core.ConfigError(f"write_webdataset: encoder = {encoder!r}: expected True, None or a function")


def _encoded(suffix: str, value: Any) -> bytes:
    """The reverse of read_webdataset()."""
    kind = suffix.rpartition(".")[2].lower()
    if isinstance(value, bytes):
        return value
    if kind in ("json", "jsn"):
        return json.dumps(value, default=lambda array: array.tolist()).encode()
    if kind == "npy" or (isinstance(value, np.ndarray) and f".{kind}" not in pillow().registered_extensions()):
        content = io.BytesIO()
        np.save(content, np.asarray(value), allow_pickle=False)
        return content.getvalue()
    if isinstance(value, np.ndarray):
        content = io.BytesIO()
        known = pillow().registered_extensions()
        image_of(value, f"write_webdataset: .{suffix}").save(content, format=known[f".{kind}"])
        return content.getvalue()
    return str(value).encode()


class SqlDatasink(Datasink[int]):
    """One transaction with all rows."""

    supports_distributed_writes = False

    def __init__(self, sql: str, connection_factory: Callable[[], Any]) -> None:
        if not callable(connection_factory):
            raise _core.ConfigError(
                f"write_sql: connection_factory = {connection_factory!r}: expected a function that opens a connection"
            )
        self._sql = sql
        self._connect = connection_factory

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> int:
        connection = self._connect()
        rows = 0
        try:
            cursor = connection.cursor()
            for table in blocks:
                for batch in table.to_batches(max_chunksize=_SQL_ROWS):
                    cursor.executemany(
                        self._sql, list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
                    )
                    rows += batch.num_rows
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        finally:
            connection.close()
        return rows
