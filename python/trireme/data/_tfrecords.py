"""TFRecord files with tf.train.Example in them, without TensorFlow."""

from __future__ import annotations

import io
import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trireme.data._crc32c import masked_crc32c
from trireme.data._file_source import FileFragment, FileSource, Listing, Placed, dataset_of_files, listing_of
from trireme.data._fragment import DataError, Fragment
from trireme.data._paths import File, select

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

_BLOCK = 1 << 20
_BATCH_RECORDS = 1024
_BATCH_BYTES = 8 << 20
# Records of the first file that tell what the features are.
_LOOKED_AT = 1024
_KINDS = {1: pa.binary(), 2: pa.float32(), 3: pa.int64()}


def read_tfrecords(
    paths: Any,
    *,
    filesystem: Any = None,
    schema: pa.Schema | None = None,
    partition_filter: Any = None,
    partitioning: Any = None,
    include_paths: bool = False,
    ignore_missing_paths: bool = False,
    shuffle: Any = None,
    file_extensions: Sequence[str] | None = None,
    on_bad_file: str = "raise",
    **others: Any,
) -> Dataset:
    """TFRecord files, a column for each feature of their tf.train.Example records. Checksums are checked.

    A feature that has one value in all of the first records is a number (or bytes), any other a list; `schema` sets it.
    """
    selection = select("read_tfrecords", paths, filesystem, file_extensions, ignore_missing_paths, partition_filter)
    listing = listing_of(selection, partitioning, include_paths)
    return dataset_of_files(TfRecordSource(listing, on_bad_file, schema), shuffle, others)


class TfRecordSource(FileSource):
    def __init__(self, listing: Listing, on_bad_file: str, schema: pa.Schema | None) -> None:
        super().__init__(listing, on_bad_file)
        self._given_schema = schema

    def _infer(self, file: File) -> pa.Schema:
        if self._given_schema is not None:
            return self._given_schema
        kinds: dict[str, int] = {}
        lists: set[str] = set()
        for number, record in enumerate(itertools.islice(_records(file), _LOOKED_AT)):
            for name, (kind, values) in _example(record, file, number).items():
                kinds[name] = kinds.get(name) or kind
                if len(values) > 1:
                    lists.add(name)
        if not kinds:
            raise DataError(f"{file.shown} has no records with features: the first file must tell what the columns are")
        types = {name: _KINDS.get(kind, pa.binary()) for name, kind in kinds.items()}
        return pa.schema([(name, pa.list_(kind) if name in lists else kind) for name, kind in sorted(types.items())])

    def _plan(self, files: Sequence[Placed], body: pa.Schema) -> list[list[Fragment]]:
        names = self.schema().names
        return [[TfRecordFragment(file, "", body, constants, names)] for file, constants in files]


class TfRecordFragment(FileFragment):
    def _batches(self, columns: Sequence[str], row: int) -> Iterator[pa.RecordBatch]:
        records = enumerate(_records(self._file))
        for _ in itertools.islice(records, row):
            pass
        while batch := list(_some(records)):
            if not columns:
                yield pa.record_batch([pa.nulls(len(batch))], ["record"])
                continue
            examples = [(number, _example(record, self._file, number)) for number, record in batch]
            for number, example in examples:
                strange = next((name for name in example if name not in self._body.names), None)
                if strange is not None:
                    raise DataError(
                        f"{self._file.shown}, record {number}: feature {strange!r} is not in the first records "
                        f"({', '.join(self._body.names)}); read_tfrecords(schema=pyarrow.schema([...])) names all"
                    )
            arrays = [self._column(self._body.field(name), examples) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def _column(self, field: pa.Field, examples: list[tuple[int, dict[str, tuple[int, Any]]]]) -> pa.Array:
        many = pa.types.is_list(field.type)
        expected = field.type.value_type if many else field.type
        column: list[Any] = []
        for number, example in examples:
            kind, values = example.get(field.name, (0, ()))
            if kind and _KINDS[kind] != expected and not (self._text(kind, expected)):
                raise DataError(
                    f"{self._file.shown}, record {number}: feature {field.name!r} is {_KINDS[kind]}, and {expected} in "
                    "the first records"
                )
            if many:
                column.append(values if kind else None)
            elif len(values) > 1:
                raise DataError(
                    f"{self._file.shown}, record {number}: feature {field.name!r} has {len(values)} values, and one in "
                    "the first records; read_tfrecords(schema=...) with a list type for it reads both"
                )
            else:
                column.append(values[0] if len(values) else None)
        return pa.array(column, field.type)

    def _text(self, kind: int, expected: pa.DataType) -> bool:
        return kind == 1 and (pa.types.is_string(expected) or pa.types.is_large_binary(expected))


def _some(records: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """As many as make a batch."""
    size = 0
    for number, record in itertools.islice(records, _BATCH_RECORDS):
        yield number, record
        size += len(record)
        if size >= _BATCH_BYTES:
            return


def _records(file: File) -> Iterator[bytes]:
    """Checked some at a time: one by one would take longer than reading them."""
    with file.open_stream() as stream, io.BufferedReader(stream, _BLOCK) as reader:
        pending: list[tuple[bytes, bytes, bytes]] = []
        size = 0
        done = 0
        while head := reader.read(12):
            if len(head) < 12:
                raise DataError(f"{file.shown} is cut off in record {done + len(pending)}")
            (length,) = struct.unpack("<Q", head[:8])
            if length > file.size * 1100:  # no compression does better: the length is broken
                raise DataError(
                    f"{file.shown}, record {done + len(pending)}: the checksum is wrong; the file is corrupt"
                )
            record = reader.read(length + 4)
            if len(record) < length + 4:
                raise DataError(f"{file.shown} is cut off in record {done + len(pending)}")
            pending.append((head, record[:length], record[length:]))
            size += length
            if len(pending) >= _BATCH_RECORDS or size >= _BATCH_BYTES:
                yield from _checked(pending, file, done)
                done += len(pending)
                pending, size = [], 0
        yield from _checked(pending, file, done)


def _checked(pending: list[tuple[bytes, bytes, bytes]], file: File, done: int) -> list[bytes]:
    if not pending:
        return []
    records = [record for _, record, _ in pending]
    found = np.concatenate([masked_crc32c([head[:8] for head, _, _ in pending]), masked_crc32c(records)])
    written = b"".join([*(head[8:] for head, _, _ in pending), *(tail for _, _, tail in pending)])
    wrong = np.flatnonzero(found != np.frombuffer(written, "<u4"))
    if len(wrong):
        number = done + int(min(wrong % len(pending)))
        raise DataError(
            f"{file.shown}, record {number}: the checksum is wrong; the file is corrupt, or no TFRecord file"
        )
    return records


def _example(record: bytes, file: File, number: int) -> dict[str, tuple[int, Any]]:
    """{name: (kind, values)} of a serialized tf.train.Example; kind 0: a feature without values."""
    try:
        features: dict[str, tuple[int, Any]] = {}
        for message in _values(_fields(memoryview(record))):
            for entry in _values(_fields(message)):
                parts = dict(_fields(entry))
                features[bytes(parts.get(1, b"")).decode()] = _feature(parts.get(2, b""))
        return features
    except (ValueError, IndexError, TypeError) as error:
        raise DataError(
            f"{file.shown}, record {number} is not a tf.train.Example ({error}); read_binary_files reads other records"
        ) from error


def _feature(message: Any) -> tuple[int, Any]:
    for kind, content in _fields(message):
        values = _values(_fields(content))
        if kind == 1:
            return 1, [bytes(value) for value in values]
        if kind == 2:
            return 2, np.frombuffer(b"".join(values), "<f4")
        numbers = [value for part in values for value in ([part] if isinstance(part, int) else _varints(part))]
        return 3, np.array(numbers, np.uint64).astype(np.int64)
    return 0, ()


def _values(fields: list[tuple[int, Any]]) -> list[Any]:
    return [value for number, value in fields if number == 1]


def _fields(view: Any) -> list[tuple[int, Any]]:
    """(number, value) of a protocol buffer: bytes, or an int for a varint."""
    fields: list[tuple[int, Any]] = []
    at, end = 0, len(view)
    while at < end:
        key, at = _varint(view, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(view, at)
            fields.append((key >> 3, value))
            continue
        if wire == 2:
            size, at = _varint(view, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        fields.append((key >> 3, view[at : at + size]))
        at += size
    if at > end:
        raise ValueError("it ends too early")
    return fields


def _varint(view: Any, at: int) -> tuple[int, int]:
    byte = view[at]
    if byte < 0x80:
        return byte, at + 1
    result, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = view[at]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFFFFFFFFFFFFFF, at + 1
        shift += 7


def _varints(packed: Any) -> list[int]:
    small: np.ndarray = np.frombuffer(packed, np.uint8)
    if not (small & 0x80).any():
        return list(small.tolist())
    at, numbers = 0, []
    while at < len(packed):
        number, at = _varint(packed, at)
        numbers.append(number)
    return numbers
