"""What readers of text have in common: blocks of bytes, and types that the beginning of the first file tells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from trireme.data._paths import File

BLOCK = 1 << 20
# So much of the first file is looked at to find the columns and their types.
SAMPLE = 8 << 20
_LARGEST_BLOCK = 1 << 30


def blocks_of(file: File, start: Callable[[Any], Any], options: Any, row: int) -> Iterator[pa.RecordBatch]:
    """The batches of one of Arrow's readers, from `row` on. A row that is longer than a block asks for larger ones."""
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
    """Without the first rows."""
    for batch in batches:
        if row >= batch.num_rows > 0:
            row -= batch.num_rows
            continue
        yield batch.slice(row)
        row = 0


def string_for_null(schema: pa.Schema) -> pa.Schema:
    """A column without values so far: text holds whatever comes."""
    return pa.schema([(field.name, pa.string() if pa.types.is_null(field.type) else field.type) for field in schema])
