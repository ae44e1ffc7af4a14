"""JSON: an object on each line, or one array of objects."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.json

from trireme.data._blocks import BLOCK, SAMPLE, blocks_of, skipped, string_for_null
from trireme.data._file_source import FileFragment, FileSource, Listing
from trireme.data._fragment import DataError
from trireme.data._memory import rows_of_batch
from trireme.data._paths import File
from trireme.data._tensors import batch_of_rows

_SCHEMA_FOR_ALL = "Set types and fields for all files: parse_options=pyarrow.json.ParseOptions(explicit_schema=...)"


class JsonFragment(FileFragment):
    def _batches(self, columns: Sequence[str], row: int) -> Iterator[pa.RecordBatch]:
        lines, read, parse = self._options
        behaviour = "error" if parse.explicit_schema is None else parse.unexpected_field_behavior
        if not _has_lines(self._file, lines):
            for batch in skipped(_whole_json(self._file), row):
                strange = set(batch.schema.names) - set(self._body.names)
                if strange and behaviour == "error":
                    raise DataError(
                        f"{self._file.shown}: field {min(strange)!r} is only in this file. {_SCHEMA_FOR_ALL}"
                    )
                yield batch
            return
        if self._file.size == 0:
            return
        read = pa.json.ReadOptions(block_size=read.block_size, use_threads=False)
        known = "ignore" if behaviour == "infer" else behaviour
        parse = pa.json.ParseOptions(self._body, parse.newlines_in_values, known)
        try:
            yield from blocks_of(self._file, lambda stream: pa.json.open_json(stream, read, parse), read, row)
        except pa.ArrowInvalid as error:
            message = str(error)
            if "unexpected field" in message:
                message += f": the beginning of the dataset has only {', '.join(self._body.names)}"
            raise DataError(f"{self._file.shown}: {message}. {_SCHEMA_FOR_ALL}") from error


class JsonSource(FileSource):
    _fragment = JsonFragment

    def __init__(self, listing: Listing, on_bad_file: str, options: tuple[bool | None, Any, Any]) -> None:
        lines, read, parse = options
        read = read or pa.json.ReadOptions(block_size=BLOCK, use_threads=False)
        super().__init__(listing, on_bad_file, (lines, read, parse or pa.json.ParseOptions()))

    def _infer(self, file: File) -> pa.Schema:
        lines, _, parse = self._options
        if parse.explicit_schema is not None:
            return parse.explicit_schema
        try:
            if not _has_lines(file, lines):
                return string_for_null(next(_whole_json(file)).schema)
            with file.open_stream() as stream:
                sample = stream.read(SAMPLE)
                if len(sample) == SAMPLE:
                    sample = sample[: sample.rfind(b"\n") + 1] or sample + stream.read()
            if not sample.strip():
                raise DataError(f"{file.shown} is empty: the first file defines the columns")
            block = pa.json.ReadOptions(block_size=max(len(sample), BLOCK), use_threads=False)
            return string_for_null(pa.json.read_json(pa.BufferReader(sample), block, parse).schema)
        except (pa.ArrowInvalid, ValueError) as error:
            raise DataError(f"{file.shown} is not a readable JSON file: {error}") from error


def _has_lines(file: File, lines: bool | None) -> bool:
    """Whether a JSON file has an object on each line; otherwise it is one value, usually an array."""
    if lines:
        return True
    with file.open_stream() as stream:
        start = stream.read(4096).removeprefix(codecs.BOM_UTF8).lstrip()
        if start[:1] == b"[":
            return False
        while b"\n" not in start and (more := stream.read(BLOCK)):
            start += more
    first = start.partition(b"\n")[0]
    try:
        json.loads(first or b"{}")
    except ValueError:
        # The first of many lines is invalid, or one object spans several lines.
        return not first.rstrip().endswith((b",", b"[", b"{"))
    return True


def _whole_json(file: File) -> Iterator[pa.RecordBatch]:
    content = json.loads(file.read())
    rows = content if isinstance(content, list) else [content]
    odd = next((index for index, row in enumerate(rows) if not isinstance(row, dict)), None)
    if odd is not None:
        raise DataError(f"{file.shown}: element {odd} of the array is {type(rows[odd]).__name__}, expected an object")
    step = rows_of_batch(file.size / max(len(rows), 1))
    for start in range(0, len(rows), step):
        yield batch_of_rows(rows[start : start + step])
