"""CSV, JSON and plain text: a fragment for each file, read block by block."""

from __future__ import annotations

import codecs
import copy
import itertools
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from trireme import _core
from trireme.data._blocks import BLOCK, SAMPLE, blocks_of, skipped, string_for_null
from trireme.data._file_source import FileFragment, FileSource, Listing, ReadFilesOptions, read_files
from trireme.data._fragment import DataError
from trireme.data._json_files import JsonSource
from trireme.data._paths import File

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

_JSON_EXTENSIONS = ("json", "jsonl")
_TEXT = pa.schema([("text", pa.string())])


def read_csv(
    paths: Any,
    *,
    read_options: Any = None,
    parse_options: Any = None,
    convert_options: Any = None,
    **options: Unpack[ReadFilesOptions],
) -> Dataset:
    """CSV files. The beginning of the first file determines the types for all files.

    read_options, parse_options, convert_options: those of pyarrow.csv; ConvertOptions(column_types=...) sets types.
    """
    return read_files(
        "read_csv",
        paths,
        partial(CsvSource, options=(read_options, parse_options, convert_options)),
        options,
        partitioning="hive",
    )


def read_json(
    paths: Any,
    *,
    lines: bool | None = None,
    read_options: Any = None,
    parse_options: Any = None,
    **options: Unpack[ReadFilesOptions],
) -> Dataset:
    """JSON files: one object per line, or one array of objects per file. Default: `lines` is detected.

    The beginning of the first file determines the types. pyarrow.json.ParseOptions(explicit_schema=...) sets them, and
    then fields that are not in the schema are ignored.
    """
    return read_files(
        "read_json",
        paths,
        partial(JsonSource, options=(lines, read_options, parse_options)),
        options,
        extensions=_JSON_EXTENSIONS,
        partitioning="hive",
    )


def read_text(
    paths: Any, *, encoding: str = "utf-8", drop_empty_lines: bool = True, **options: Unpack[ReadFilesOptions]
) -> Dataset:
    """One row per line, in the column "text"."""
    try:
        name = codecs.lookup(encoding).name
    except (LookupError, TypeError):
        raise _core.ConfigError(f"read_text: encoding = {encoding!r}: unknown encoding") from None
    return read_files(
        "read_text",
        paths,
        partial(TextSource, options=(name, drop_empty_lines)),
        options,
        partitioning="hive",
    )


class CsvFragment(FileFragment):
    def _batches(self, columns: Sequence[str], row: int) -> Iterator[pa.RecordBatch]:
        read, parse, convert = self._options
        read, parse, convert = copy.copy(read), _unpickled(parse), copy.copy(convert)
        read.use_threads = False
        convert.column_types = {field.name: field.type for field in self._body}
        all_columns = len(columns) == len(self._body)
        if not all_columns:
            convert.include_columns = list(columns) or self._body.names[:1]
        try:
            for batch in blocks_of(self._file, lambda stream: pa.csv.open_csv(stream, read, parse, convert), read, row):
                if all_columns:
                    self._compare(batch.schema.names)
                yield batch
        except pa.ArrowKeyError as error:
            raise DataError(f"{self._file.shown}: {error}, unlike the first file of the dataset") from error
        except pa.ArrowInvalid as error:
            raise DataError(f"{self._file.shown}: {self._named(str(error))}") from error

    def _compare(self, names: Sequence[str]) -> None:
        for name in self._body.names:
            if name not in names:
                raise DataError(f"{self._file.shown}: column {name!r} is missing, but the first file has it")
        for name in names:
            if name not in self._body.names:
                raise DataError(
                    f"{self._file.shown}: column {name!r} is not in the first file; omit it with select_columns([...])"
                )

    def _named(self, message: str) -> str:
        """Adds the column's name: Arrow reports only its number."""
        found = re.match(r"In CSV column #(\d+): (.*)", message, re.DOTALL)
        if not found:
            return message
        with self._file.open_stream() as stream, pa.csv.open_csv(stream, *self._options[:2]) as reader:
            name = reader.schema.names[int(found[1])]
        kind = self._body.field(name).type if name in self._body.names else "?"
        return (
            f"column {name!r} is {kind} in the beginning of the dataset: {found[2]}. "
            f"Set a type for all files: convert_options=pyarrow.csv.ConvertOptions(column_types={{{name!r}: ...}})"
        )


class CsvSource(FileSource):
    _fragment = CsvFragment

    def __init__(self, listing: Listing, on_bad_file: str, options: tuple[Any, Any, Any]) -> None:
        read, parse, convert = options
        self._finds_nulls = convert is None
        given = read or pa.csv.ReadOptions(block_size=BLOCK), parse or pa.csv.ParseOptions()
        super().__init__(listing, on_bad_file, (*given, convert or pa.csv.ConvertOptions()))

    def _infer(self, file: File) -> pa.Schema:
        read, parse, convert = self._options
        larger = copy.copy(read)
        larger.block_size, larger.use_threads = max(SAMPLE, read.block_size or 0), False

        def inferred(convert: Any) -> pa.Schema:
            with file.open_stream() as stream, pa.csv.open_csv(stream, larger, parse, convert) as reader:
                return string_for_null(reader.schema)

        try:
            found = inferred(convert)
        except pa.ArrowInvalid as error:
            raise DataError(f"{file.shown} is not a readable CSV file: {error}") from error
        if self._finds_nulls:
            # As write_csv() writes it: null without quotes, text in quotes. Not for files with quoted nulls in numbers.
            quoting = pa.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
            if inferred(quoting).equals(found):
                self._options = (read, parse, quoting)
        return found


class TextFragment(FileFragment):
    def _batches(self, columns: Sequence[str], row: int) -> Iterator[pa.RecordBatch]:
        batches = (pa.record_batch([lines], schema=_TEXT) for lines in self._lines_of_blocks() if len(lines))
        yield from skipped(batches, row)

    def _lines_of_blocks(self) -> Iterator[pa.Array]:
        rest: list[bytes] = []  # the beginning of an incomplete line
        for block in self._blocks():
            end = block.rfind(b"\n")
            if end < 0:
                rest.append(block)
                continue
            yield self._split(b"".join([*rest, block[:end]]))
            rest = [block[end + 1 :]]
        last = b"".join(rest)
        if last:
            yield self._split(last)

    def _blocks(self) -> Iterator[bytes]:
        """Blocks of UTF-8, without a byte order mark."""
        with self._file.open_stream() as stream:
            blocks = iter(lambda: stream.read(BLOCK), b"")
            encoding, _ = self._options
            if encoding != "utf-8":
                decoder = codecs.getincrementaldecoder(encoding)()
                blocks = (decoder.decode(block, not block).encode() for block in itertools.chain(blocks, [b""]))
            first = True
            for block in blocks:
                yield block.removeprefix(codecs.BOM_UTF8) if first else block
                first = False

    def _split(self, block: bytes) -> pa.Array:
        """Arrow splits the lines, without the interpreter's lock."""
        encoding, drop_empty = self._options
        ends = pa.array([0, len(block)], pa.int64())
        whole = pa.LargeStringArray.from_buffers(1, ends.buffers()[1], pa.py_buffer(block))
        lines = pc.split_pattern(whole, "\n").flatten()
        if b"\r" in block:
            lines = pc.utf8_rtrim(lines, "\r")
        try:
            lines = lines.cast(pa.string())
            lines.validate(full=True)
        except pa.ArrowInvalid as error:
            raise DataError(f"{self._file.shown} is not {encoding}: {error}; set encoding=...") from error
        if drop_empty:
            full = pc.greater(pc.binary_length(lines), 0)
            lines = lines if pc.all(full).as_py() else lines.filter(full)
        return lines


class TextSource(FileSource):
    _fragment = TextFragment

    def _infer(self, file: File) -> pa.Schema:
        return _TEXT


def _unpickled(parse: Any) -> Any:
    """Works around pyarrow, which calls a handler that unpickled options lack."""
    if parse.invalid_row_handler is not None:
        return parse
    names = ("delimiter", "quote_char", "double_quote", "escape_char", "newlines_in_values", "ignore_empty_lines")
    return pa.csv.ParseOptions(**{name: getattr(parse, name) for name in names})
