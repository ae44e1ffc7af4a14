"""JSON: an object on each line, or one array of objects."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.json

from trireme.data._blocks import BLOCK, SAMPLE, blocks_of, skipped, string_for_null
from trireme.data._file_source import FileFragment, FileSource, Listing, Placed
from trireme.data._fragment import DataError, Fragment
from trireme.data._memory import rows_of_batch
from trireme.data._paths import File
from trireme.data._tensors import batch_of_rows

_SCHEMA_FOR_ALL = "Set types and fields for all files: parse_options=pyarrow.json.ParseOptions(explicit_schema=...)"


class JsonSource(FileSource):
    def __init__(self, listing: Listing, on_bad_file: str, lines: bool | None, read: Any, parse: Any) -> None:
        super().__init__(listing, on_bad_file)
        self._lines = lines
        self._read = read or pa.json.ReadOptions(block_size=BLOCK, use_threads=False)
        self._parse = parse or pa.json.ParseOptions()

    def _infer(self, file: File) -> pa.Schema:
        if self._parse.explicit_schema is not None:
            return self._parse.explicit_schema
        try:
            if not _has_lines(file, self._lines):
                return string_for_null(next(_whole_json(file)).schema)
            with file.open_stream() as stream:
                sample = stream.read(SAMPLE)
                if len(sample) == SAMPLE:
                    sample = sample[: sample.rfind(b"\n") + 1] or sample + stream.read()
            if not sample.strip():
                raise DataError(f"{file.shown} is empty: the first file defines the columns")
            block = pa.json.ReadOptions(block_size=max(len(sample), BLOCK), use_threads=False)
            return string_for_null(pa.json.read_json(pa.BufferReader(sample), block, self._parse).schema)
        except (pa.ArrowInvalid, ValueError) as error:
            raise DataError(f"{file.shown} is not a readable JSON file: {error}") from error

    def _plan(self, files: Sequence[Placed], body: pa.Schema) -> list[list[Fragment]]:
        names = self.schema().names
        return [[JsonFragment(f, body, constants, names, self)] for f, constants in files]

    def options(self, body: pa.Schema) -> tuple[Any, Any]:
        """Arrow's options for reading with the known schema."""
        behaviour = "error" if self._parse.explicit_schema is None else self._parse.unexpected_field_behavior
        if behaviour == "infer":
            behaviour = "ignore"
        return self._read, pa.json.ParseOptions(body, self._parse.newlines_in_values, behaviour)


class JsonFragment(FileFragment):
    def __init__(self, file: File, body: pa.Schema, constants: Any, names: Sequence[str], source: JsonSource) -> None:
        super().__init__(file, "", body, constants, names)
        self._lines = source._lines
        self._options = source.options(body)

    def _batches(self, columns: Sequence[str], row: int) -> Iterator[pa.RecordBatch]:
        if not _has_lines(self._file, self._lines):
            for batch in skipped(_whole_json(self._file), row):
                strange = set(batch.schema.names) - set(self._body.names)
                if strange and self._options[1].unexpected_field_behavior == "error":
                    raise DataError(
                        f"{self._file.shown}: field {min(strange)!r} is only in this file. {_SCHEMA_FOR_ALL}"
                    )
                yield batch
            return
        if self._file.size == 0:
            return
        read = pa.json.ReadOptions(block_size=self._options[0].block_size, use_threads=False)
        parse = self._options[1]
        try:
            yield from blocks_of(self._file, lambda stream: pa.json.open_json(stream, read, parse), read, row)
        except pa.ArrowInvalid as error:
            message = str(error)
            if "unexpected field" in message:
                message += f": the beginning of the dataset has only {', '.join(self._body.names)}"
            raise DataError(f"{self._file.shown}: {message}. {_SCHEMA_FOR_ALL}") from error


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
