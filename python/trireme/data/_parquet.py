"""Parquet files: a fragment for each row group, decoded by Arrow without the interpreter."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as fs
import pyarrow.parquet as pq

from trireme import _core
from trireme.data._file_source import (
    FileSource,
    Listing,
    Placed,
    ReadFilesOptions,
    assemble,
    check_same,
    in_threads,
    read_files,
)
from trireme.data._fragment import DataError, Fragment, Source
from trireme.data._memory import rows_of_batch
from trireme.data._paths import File
from trireme.data._promotion import common_type, conform
from trireme.data._tensors import plain_type

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

_FORMAT = ds.ParquetFileFormat()
# Object stores: fetch a complete row group at once. Disks: read as the decoder proceeds.
_REMOTE = ds.ParquetFragmentScanOptions(pre_buffer=True)
_LOCAL = ds.ParquetFragmentScanOptions(pre_buffer=False)
# Arrow decodes row groups up to this size at once; larger ones are decoded page by page.
_SCANNED_BYTES = 8 << 20
_PAGE_BUFFER = 256 << 10
# An estimate for each column of that size: a dictionary, a stored page and a decoded page, which writers limit to about
# a megabyte each, and the stream's read-ahead.
_PAGES_BYTES = 5 << 19


def read_parquet(
    paths: Any,
    *,
    columns: Sequence[str] | None = None,
    filter: Any = None,
    schema: pa.Schema | None = None,
    strict: bool = False,
    **options: Unpack[ReadFilesOptions],
) -> Dataset:
    """Parquet files, folders or globs, local or in an object store.

    columns: only these are read. filter: a pyarrow.compute expression; row groups that it excludes are not read.
    Files may have different columns and types: columns that a file lacks are null, and types are promoted where nothing
    is lost. strict: all files must have the columns and types of the first. schema: of all files, instead of theirs.
    on_bad_file="skip": reads every file once at the start, to skip the unreadable ones.
    """

    def source(listing: Listing, on_bad_file: str) -> FileSource:
        found = ParquetSource(listing, on_bad_file, schema, strict)
        if columns is not None:
            also = ["path"] if listing.include_paths and "path" not in columns else []
            found = found.with_columns([*columns, *also] if not isinstance(columns, str) else columns)
        return found if filter is None else found.filtered(filter)

    given = {name: value for name, value in options.items() if name not in ("batch_size", "use_threads")}
    return read_files("read_parquet", paths, source, given, extensions=("parquet",), partitioning="hive")


class ParquetSource(FileSource):
    def __init__(
        self, listing: Listing, on_bad_file: str = "raise", schema: pa.Schema | None = None, strict: bool = False
    ) -> None:
        super().__init__(listing, on_bad_file)
        self._given_schema = schema
        self._strict = strict
        self._clashes: dict[str, str] = {}
        self._filter: Any = None  # Arrow's scanner evaluates it, and prunes row groups by their statistics
        self._late: Any = None  # evaluated on the rows that were read, and on the partitions

    def with_filter(self, expression: Any) -> Source | None:
        try:
            return self.filtered(expression)
        except DataError:  # it uses columns that are not in the files, for example the path
            return None

    def filtered(self, expression: Any) -> ParquetSource:
        if not isinstance(expression, pc.Expression):
            raise _core.ConfigError(f"read_parquet: filter = {expression!r}: expected a pyarrow.compute expression")
        schema = self._scanned_schema()
        try:
            ds.dataset(schema.empty_table()).scanner(filter=expression)
        except (pa.ArrowException, TypeError) as error:
            reason = str(error).partition(" in ")[0]
            raise DataError(
                f"read_parquet: filter = {expression}: {reason}; there are {', '.join(schema.names)}"
            ) from error
        name = "_filter" if _false_for_nan(expression, schema) else "_late"
        before = getattr(self, name)
        return self._changed(**{name: expression if before is None else before & expression})

    def _infer(self, file: File) -> pa.Schema:
        if self._given_schema is not None:
            return self._given_schema
        return _plain(_physical_schema(file))

    def _body_schema(self) -> pa.Schema:
        if self._body is None:
            found = super()._body_schema()
            if self._given_schema is None and not self._strict:
                found = self._common(found)
            self._body = found
        return self._body

    def schema(self) -> pa.Schema:
        found = super().schema()
        for name in found.names:
            if name in self._clashes:
                raise DataError(self._clashes[name])
        return found

    def _common(self, found: pa.Schema) -> pa.Schema:
        """The columns of all files. Those without a common type are an error only if they are read."""
        first, *others = self._listing.files()
        fields = {field.name: field for field in found}
        for file, schema in zip(others, in_threads(self._columns_of, others), strict=True):
            for field in schema or ():
                before = fields.get(field.name, field)
                kind = common_type(before.type, field.type)
                fields[field.name] = before if kind is None else pa.field(field.name, kind)
                if kind is None:
                    self._clashes[field.name] = (
                        f"read_parquet: column {field.name!r} is {field.type} in {file.shown} and {before.type} in "
                        f"{first.shown} or a file after it: read them separately and convert one, or omit the column "
                        "(columns=[...])"
                    )
        return pa.schema(list(fields.values()))

    def _columns_of(self, file: File) -> pa.Schema | None:
        try:
            return self._infer(file)
        except (DataError, pa.ArrowException):
            if self._on_bad_file == "skip":
                return None
            raise

    def _scanned_schema(self) -> pa.Schema:
        """The schema for Arrow: the files' columns and the partitions, without our path column."""
        body, whole = self._body_schema(), self._whole_schema()
        ours = {"path"} - set(body.names) if self._listing.include_paths else set()
        return pa.schema([field for field in whole if field.name not in ours])

    def _plan(self, files: Sequence[Placed], body: pa.Schema) -> list[list[Fragment]]:
        scanned, names = self._scanned_schema(), self.schema().names
        needed = pa.schema([field for field in body if field.name in names])
        widths = _Widths(needed)
        first = self._listing.files()[0]
        late = _Late.of([self._late], scanned)

        def fragments_of(entry: tuple[Placed, bool | None]) -> list[Fragment]:
            (file, constants), kept_whole = entry
            if kept_whole is False:
                return []
            row_filter, late_filter = (None, None) if kept_whole else (self._filter, late)
            fragment = _scan(file, constants, scanned)
            footer = _named(file, lambda: fragment.metadata)
            if self._given_schema is None and self._strict:
                check_same("read_parquet", file, _plain(fragment.physical_schema), first, needed)
            groups = [group for group in range(footer.num_row_groups) if footer.row_group(group).num_rows]
            if row_filter is not None:
                try:
                    kept = fragment.split_by_row_group(filter=row_filter, schema=scanned)
                    groups = [group.id for part in kept for group in part.row_groups]
                except pa.ArrowInvalid:
                    # Arrow cannot convert a statistic to the type of a value in the filter: only the rows are compared.
                    row_filter, late_filter = None, _Late.of([self._filter, self._late], scanned)
            constants = {name: value for name, value in constants.items() if name not in body.names}
            plan = _FilePlan(file, constants, scanned, names, row_filter, late_filter)
            return [ParquetFragment(plan, group, footer.row_group(group), widths) for group in groups]

        return in_threads(fragments_of, list(zip(files, self._decided(files, scanned), strict=True)))

    def _decided(self, files: Sequence[Placed], scanned: pa.Schema) -> list[bool | None]:
        """Whether the partition of each file satisfies the filters; None: it depends on the rows."""
        both = _Late.of([self._filter, self._late], scanned)
        if both is None:
            return [True] * len(files)
        whole_filter = both.expression
        fragments = [_scan(file, constants, scanned) for file, constants in files]
        whole = ds.FileSystemDataset(fragments, scanned, _FORMAT, files[0][0].filesystem)
        possible = {fragment.path for fragment in whole.get_fragments(filter=whole_filter)}
        undecided = {fragment.path for fragment in whole.get_fragments(filter=~whole_filter)}
        return [False if file.path not in possible else None if file.path in undecided else True for file, _ in files]


@dataclass(frozen=True)
class _Late:
    """A filter for the rows that were read, and the columns that it needs."""

    expression: Any
    columns: Sequence[str]

    @staticmethod
    def of(filters: Sequence[Any], schema: pa.Schema) -> _Late | None:
        """All filters that are not None."""
        given = [each for each in filters if each is not None]
        if not given:
            return None
        expression = functools.reduce(operator.and_, given)
        return _Late(expression, _columns_of(expression, schema))


@dataclass(frozen=True)
class _FilePlan:
    """Shared by the row groups of a file."""

    file: File
    constants: Mapping[str, pa.Scalar]
    scanned: pa.Schema
    names: Sequence[str]
    row_filter: Any
    late: _Late | None


class ParquetFragment(Fragment):
    def __init__(self, plan: _FilePlan, group: int, about: Any, widths: _Widths) -> None:
        self._plan = plan
        self._group = group
        self._row_bytes, pages = widths.of(about)
        self.name = f"{plan.file.name}, row group {group}"
        self.rows = about.num_rows if plan.row_filter is None and plan.late is None else None
        self.size_bytes: int = int(about.num_rows * self._row_bytes)
        # Decoding at once holds the complete row group in memory, however few of its rows are left to deliver.
        self.decoding_bytes = pages if self._paged() else 2 * self.size_bytes
        self.remote = plan.file.remote
        self.version = plan.file.version

    def open(self, columns: Sequence[str] | None = None, row: int = 0) -> tuple[pa.RecordBatchReader, int]:
        plan = self._plan
        plan.file.check()
        names = list(plan.names if columns is None else columns)
        whole = _scan(plan.file, plan.constants, plan.scanned)
        footer = _named(plan.file, lambda: whole.metadata)
        if self._group >= footer.num_row_groups:
            raise DataError(
                f"{plan.file.shown} has changed since the dataset was created: row group {self._group} is missing"
            )
        late = plan.late
        read = names if late is None else list(dict.fromkeys([*names, *late.columns]))
        if self._paged():
            reader = pa.RecordBatchReader.from_batches(self._schema(read), self._streamed(footer, read))
        else:
            reader = self._scanned(whole, read)
        if late is None:
            return reader, 0
        batches = (batch.filter(late.expression).select(names) for batch in reader)
        return pa.RecordBatchReader.from_batches(self._schema(names), batches), 0

    def _paged(self) -> bool:
        return self._plan.row_filter is None and self.size_bytes > _SCANNED_BYTES

    def _scanned(self, whole: Any, names: Sequence[str]) -> pa.RecordBatchReader:
        """Arrow decodes without the interpreter, with the complete row group in memory."""
        scanner = whole.subset(row_group_ids=[self._group]).scanner(
            schema=self._plan.scanned,
            columns={name: self._column(name) for name in names},
            filter=self._plan.row_filter,
            batch_size=rows_of_batch(self._row_bytes),
            batch_readahead=0,
            fragment_readahead=0,
            fragment_scan_options=_REMOTE if self.remote else _LOCAL,
            use_threads=False,
        )
        return scanner.to_reader()

    def _streamed(self, footer: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Decodes page by page: a large row group takes no more memory than a small one."""
        file, schema = self._plan.file, self._schema(names)
        stored = [name for name in names if name not in self._plan.constants]
        body = pa.schema([schema.field(name) for name in stored])
        try:
            with file.open_file() as handle:
                reader = pq.ParquetFile(
                    handle, metadata=footer, pre_buffer=self.remote, buffer_size=0 if self.remote else _PAGE_BUFFER
                )
                known = [name for name in stored if name in reader.schema_arrow.names]
                batches = reader.iter_batches(
                    rows_of_batch(self._row_bytes), row_groups=[self._group], columns=known, use_threads=False
                )
                for batch in batches:
                    yield assemble(conform(batch, body, self.name), schema, self._plan.constants)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and self.remote:
                raise
            raise DataError(f"{file.shown}, row group {self._group}: {error}") from error

    def _schema(self, names: Sequence[str]) -> pa.Schema:
        constants = self._plan.constants
        return pa.schema(
            [
                pa.field(name, constants[name].type) if name in constants else self._plan.scanned.field(name)
                for name in names
            ]
        )

    def _column(self, name: str) -> Any:
        return pc.field(name) if name in self._plan.scanned.names else pc.scalar(self._plan.constants[name])


class _Widths:
    """Estimates the bytes of a row in memory: by type, and for text by the row group's metadata."""

    def __init__(self, columns: pa.Schema) -> None:
        widths = {field.name: _width(field.type) for field in columns}
        self._fixed = [width for width in widths.values() if width is not None]
        self._varying = {name for name, width in widths.items() if width is None}

    def of(self, group: Any) -> tuple[float, int]:
        """The bytes of a row, and of the pages in memory while the row group is read page by page."""
        sizes = [width * group.num_rows for width in self._fixed]
        if self._varying:
            chunks = [group.column(index) for index in range(group.num_columns)]
            sizes += [
                chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in self._varying
            ]
        return sum(sizes) / max(group.num_rows, 1), sum(min(size, _PAGES_BYTES) for size in sizes)


def _width(kind: pa.DataType) -> int | None:
    """Bytes of a value; None: variable."""
    if isinstance(kind, pa.BaseExtensionType):
        return _width(kind.storage_type)
    if pa.types.is_fixed_size_list(kind):
        inner = _width(kind.value_type)
        return None if inner is None else inner * kind.list_size
    if pa.types.is_dictionary(kind):
        return None
    try:
        return int(kind.bit_width + 7) // 8
    except ValueError:
        return None


def _false_for_nan(expression: Any, schema: pa.Schema) -> bool:
    """Whether the expression excludes all rows with a NaN. Only then can statistics exclude row groups: they ignore
    NaN. Arrow answers: with a column fixed at NaN, no fragment satisfies the expression.
    """
    local = fs.LocalFileSystem()
    for path, kind in _floats(schema.field(name) for name in _columns_of(expression, schema)):
        fixed = pc.field(*path) == pc.scalar(pa.scalar(float("nan"), kind))
        fragment = _FORMAT.make_fragment("any", local, partition_expression=fixed)
        dataset = ds.FileSystemDataset([fragment], schema, _FORMAT, local)
        try:
            if list(dataset.get_fragments(filter=expression)):
                return False
        except pa.ArrowException:  # for example, a NaN cannot be cast to an integer
            return False
    return True


def _floats(fields: Iterable[pa.Field]) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    """The paths and types of the floats, also within structs."""
    for field in fields:
        if pa.types.is_floating(field.type):
            yield (field.name,), field.type
        elif pa.types.is_struct(field.type):
            yield from (((field.name, *path), kind) for path, kind in _floats(field.type))


def _columns_of(expression: Any, schema: pa.Schema) -> list[str]:
    """The columns that the expression uses: without one of them, Arrow cannot bind it."""
    text = str(expression)
    found = []
    for index, name in enumerate(schema.names):
        if name not in text and "FieldPath" not in text:
            continue
        try:
            ds.dataset(schema.remove(index).empty_table()).scanner(filter=expression)
        except (pa.ArrowException, TypeError):
            found.append(name)
    return found


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(plain_type(field.type)).remove_metadata() for field in schema])


def _physical_schema(file: File) -> pa.Schema:
    return _named(file, lambda: _arrow_fragment(file, ()).physical_schema)


def _named(file: File, read: Any) -> Any:
    try:
        return read()
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and file.remote:
            raise
        raise DataError(f"{file.shown} is not a readable Parquet file: {error}") from error


def _scan(file: File, constants: Mapping[str, pa.Scalar], scanned: pa.Schema) -> Any:
    """The file as a fragment of an Arrow dataset, with its partition."""
    return _arrow_fragment(file, tuple((name, value) for name, value in constants.items() if name in scanned.names))


@functools.lru_cache(maxsize=64)
def _arrow_fragment(file: File, partition: tuple[tuple[str, pa.Scalar], ...]) -> Any:
    """Cached with its footer, because the row groups of a file are opened one after another."""
    conditions = [
        pc.field(name) == pc.scalar(value) if value.is_valid else pc.field(name).is_null() for name, value in partition
    ]
    expression = functools.reduce(operator.and_, conditions) if conditions else None
    return _FORMAT.make_fragment(file.path, file.filesystem, partition_expression=expression)
