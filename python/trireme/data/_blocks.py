"""Shared by the readers of text: blocks of bytes, and types inferred from the beginning of the first file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from trireme.data._paths import File

BLOCK = 1 << 20
# The number of bytes of the first file from which the columns and their types are inferred.
SAMPLE = 8 << 20
_LARGEST_BLOCK = 1 << 30


def blocks_of(file: File, start: Callable[[Any], Any], options: Any, row: int) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow reader from `row` on. If a row is longer than a block, larger blocks are read."""
    options.block_size = options.block_size or BLOCK
    done = row
    while True:
        try:
            with file.open_stream() as stream, start(stream) as reader:
                for batch in skipped(reader, done):
                    yield batch
                    done += batch.num_rows
            return
        except pa.ArrowInvalid as error:
            if "straddl" not in str(error) or options.block_size >= _LARGEST_BLOCK:
                raise
            options.block_size *= 16


def skipped(batches: Iterable[pa.RecordBatch], row: int) -> Iterator[pa.RecordBatch]:
    """Skips the first rows."""
    for batch in batches:
        if row >= batch.num_rows > 0:
            row -= batch.num_rows
            continue
        yield batch.slice(row)
        row = 0


def string_for_null(schema: pa.Schema) -> pa.Schema:
    """A column without values so far becomes text, which can hold any later value."""
    return pa.schema([(field.name, pa.string() if pa.types.is_null(field.type) else field.type) for field in schema])
