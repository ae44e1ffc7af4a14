"""Shared by all readers of files: listing, partitions, bad files, schemas that must agree."""

from __future__ import annotations

import copy
import threading
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, TypedDict

import pyarrow as pa
import pyarrow.dataset as ds

from trireme import _core
from trireme._core import count_of
from trireme.data._column_ops import batch_with
from trireme.data._fragment import DataError, Fragment, Source
from trireme.data._paths import File, Selection, partition_values, select
from trireme.data._promotion import conform

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

_THREADS = 16
# The typical ratio of uncompressed to compressed size.
_UNPACKED = 4
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
# Ray's options for the resources of read tasks. Trireme has no read tasks and ignores them.
_WITHOUT_MEANING = frozenset(
    (
        "parallelism",
        "concurrency",
        "override_num_blocks",
        "num_cpus",
        "num_gpus",
        "memory",
        "resources",
        "ray_remote_args",
    )
)

# A file, and the columns that are constant in it.
Placed = tuple[File, dict[str, pa.Scalar]]


class Listing:
    """The files, listed once, with the partition of each. Copies of a source share it."""

    def __init__(self, selection: Selection, partitioning: Any, include_paths: bool) -> None:
        self.selection = selection
        self._partitioning = partitioning
        self.include_paths = include_paths
        self._lock = threading.Lock()
        self._files: list[File] | None = None
        self._constants: list[dict[str, pa.Scalar]] | None = None
        # The files that can be read; None: not tried yet.
        self.readable: list[Placed] | None = None

    def files(self) -> list[File]:
        with self._lock:
            if self._files is None:
                self._files = self.selection.files()
            return self._files

    def constants(self) -> list[dict[str, pa.Scalar]]:
        """For each file the columns that are constant in it."""
        if self._constants is None:
            files = self.files()
            found = self._partitions(files)
            if self.include_paths:
                paths = [pa.scalar(file.shown, pa.string()) for file in files]
                found = [{**partition, "path": path} for partition, path in zip(found, paths, strict=True)]
            self._constants = found
        return self._constants

    def _partitions(self, files: Sequence[File]) -> list[dict[str, pa.Scalar]]:
        if self._partitioning is None:
            return [{} for _ in files]
        if isinstance(self._partitioning, ds.Partitioning):
            schema = self._partitioning.schema
            found = [ds.get_partition_keys(self._partitioning.parse(_folder(file.name))) for file in files]
            return [{f.name: pa.scalar(keys.get(f.name), f.type) for f in schema} for keys in found]
        values = [partition_values(file.given) for file in files]
        types = {
            key: _partition_type([v.get(key) for v in values]) for key in dict.fromkeys(k for v in values for k in v)
        }
        return [{key: _partition_scalar(value.get(key), kind) for key, kind in types.items()} for value in values]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()


class FileSource(Source):
    """Files of one format. Subclasses define the columns and the fragments of a file.

    options: of the format, for the fragments.
    """

    _fragment: type[FileFragment]  # of a whole file

    def __init__(self, listing: Listing, on_bad_file: str = "raise", options: Any = None) -> None:
        self.name = listing.selection.reader
        self._listing = listing
        self._on_bad_file = on_bad_file
        self._options = options
        self._columns: list[str] | None = None
        self._fragments: list[Fragment] | None = None
        self._body: pa.Schema | None = None

    @abstractmethod
    def _infer(self, file: File) -> pa.Schema:
        """The columns of a file. Reads as little of it as possible."""

    def _plan(self, files: Sequence[Placed], body: pa.Schema) -> list[list[Fragment]]:
        """The fragments of each file. Raises a DataError that names a file whose columns differ from `body`."""
        names = self.schema().names
        return [[self._fragment(file, body, constants, names, self._options)] for file, constants in files]

    def files(self) -> list[str]:
        return [file.shown for file in self._listing.files()]

    def schema(self) -> pa.Schema:
        whole = self._whole_schema()
        return whole if self._columns is None else pa.schema([whole.field(name) for name in self._columns])

    def fragments(self) -> list[Fragment]:
        if self._fragments is None:
            files = list(zip(self._listing.files(), self._listing.constants(), strict=True))
            if self._on_bad_file == "skip":
                if self._listing.readable is None:
                    self._listing.readable = self._without_bad(files)
                files = self._listing.readable
            planned = self._plan(files, self._body_schema())
            self._fragments = [fragment for fragments in planned for fragment in fragments]
        return self._fragments

    def with_columns(self, columns: Sequence[str]) -> Self:
        if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
            raise _core.ConfigError(f"{self.name}: columns = {columns!r}: expected a list of names")
        there = self._columns or self._whole_schema().names
        for name in columns:
            if name not in there:
                raise DataError(f"{self.name}: no column named {name!r}; the columns are {', '.join(there)}")
        return self._changed(_columns=list(columns))

    def _changed(self, **values: Any) -> Self:
        other = copy.copy(self)
        other.__dict__.update(values, _fragments=None)
        return other

    def _body_schema(self) -> pa.Schema:
        """The schema of the files' contents, without the columns from their paths."""
        if self._body is None:
            files = self._listing.files()
            if self._on_bad_file == "raise":
                self._body = self._infer(files[0])
            else:
                self._body = self._first_good(files)
        return self._body

    def _first_good(self, files: Sequence[File]) -> pa.Schema:
        for file in files:
            try:
                return self._infer(file)
            except (DataError, pa.ArrowException):
                continue
        count = count_of(len(files), "file")
        raise DataError(f"{self.name}: cannot read any of {count}; the first is {files[0].shown}")

    def _whole_schema(self) -> pa.Schema:
        body = self._body_schema()
        constants = self._listing.constants()[0]
        added = [pa.field(name, value.type) for name, value in constants.items() if name not in body.names]
        return pa.schema([*body, *added])

    def _without_bad(self, files: list[Placed]) -> list[Placed]:
        """Reads every file once and skips the unreadable ones, with one warning."""
        body = self._body_schema()

        def readable(entry: Placed) -> str | None:
            try:
                for fragment in self._plan([entry], body)[0]:
                    for _ in fragment.open()[0]:
                        pass
            except (DataError, pa.ArrowException) as error:
                return str(error)
            except OSError as error:
                entry[0].check()  # raises if the store does not respond: the file may be fine
                return str(error)
            return None

        problems = in_threads(readable, files)
        bad = [(file, problem) for (file, _), problem in zip(files, problems, strict=True) if problem is not None]
        if bad:
            names = ", ".join(file.shown for file, _ in bad[:3]) + (", ..." if len(bad) > 3 else "")
            warnings.warn(
                f"{self.name}: {len(bad)} of {count_of(len(files), 'file')} cannot be read and are skipped: {names} "
                f"({bad[0][1]})",
                stacklevel=2,
            )
        if len(bad) == len(files):
            raise DataError(f"{self.name}: cannot read any of {count_of(len(files), 'file')}: {bad[0][1]}")
        return [entry for entry, problem in zip(files, problems, strict=True) if problem is None]


class FileFragment(Fragment):
    """A file, or a part of one, that is decoded in Python. All files have the same schema."""

    def __init__(
        self,
        file: File,
        body: pa.Schema,
        constants: Mapping[str, pa.Scalar],
        names: Sequence[str],
        options: Any = None,
        part: str = "",
        rows: int | None = None,
        size_bytes: int | None = None,
    ) -> None:
        self._file = file
        self._body = body
        self._options = options
        self._names = list(names)
        self._constants = {name: value for name, value in constants.items() if name not in body.names}
        self.name = f"{file.name}, {part}" if part else file.name
        self.rows = rows
        self.size_bytes = unpacked_size(file) if size_bytes is None else size_bytes
        self.remote = file.remote
        self.version = file.version

    @abstractmethod
    def _batches(self, columns: Sequence[str], row: int) -> Iterator[pa.RecordBatch]:
        """The batches from `row` on, with at least these columns of the body."""

    def open(self, columns: Sequence[str] | None = None, row: int = 0) -> tuple[pa.RecordBatchReader, int]:
        self._file.check()
        whole = pa.schema([*self._body, *(pa.field(name, value.type) for name, value in self._constants.items())])
        names = self._names if columns is None else list(columns)
        schema = pa.schema([whole.field(name) for name in names])
        body = [name for name in names if name in self._body.names]
        return pa.RecordBatchReader.from_batches(schema, self._completed(schema, body, row)), row

    def _completed(self, schema: pa.Schema, body: list[str], row: int) -> Iterator[pa.RecordBatch]:
        wanted = pa.schema([self._body.field(name) for name in body])
        try:
            for batch in self._batches(body, row):
                if body and batch.schema.names != body:
                    batch = batch.select([name for name in body if name in batch.schema.names])
                yield assemble(conform(batch, wanted, self._file.shown) if body else batch, schema, self._constants)
        except DataError:
            raise
        except (pa.ArrowException, ValueError, OSError) as error:
            if isinstance(error, OSError) and self.remote:
                raise
            raise DataError(f"{self._file.shown}: {error}") from error


def unpacked_size(file: File) -> int:
    return file.size * (1 if file.compression is None else _UNPACKED)


def assemble(batch: pa.RecordBatch, schema: pa.Schema, constants: Mapping[str, pa.Scalar]) -> pa.RecordBatch:
    """The batch's columns and the constant columns, in the order of the schema."""
    rows = batch.num_rows
    columns = [
        batch.column(name) if name in batch.schema.names else pa.repeat(constants[name], rows) for name in schema.names
    ]
    return batch_with(columns, schema, rows)


class ReadFilesOptions(TypedDict, total=False):
    """What all readers of files take.

    filesystem: of pyarrow or fsspec. file_extensions: other files in folders are left out; None: none are.
    partitioning: how paths become columns: "hive" (`year=2020/`), one of pyarrow.dataset's, or None. partition_filter:
    a function of the columns from the path. include_paths: adds the column "path". ignore_missing_paths: paths without
    files are not an error. on_bad_file: "raise", or "skip" with a warning. shuffle: "files" or FileShuffleConfig, a new
    order of the fragments in every epoch. arrow_open_stream_args={"compression": "gzip"}: for compressed files without
    the usual extension.
    """

    filesystem: Any
    file_extensions: Sequence[str] | None
    partitioning: Any
    partition_filter: Any
    include_paths: bool
    ignore_missing_paths: bool
    skip_paths: Any
    on_bad_file: str
    shuffle: Any
    arrow_open_stream_args: dict[str, Any] | None


def read_files(
    reader: str,
    paths: Any,
    source: Callable[[Listing, str], FileSource],
    given: Mapping[str, Any],
    *,
    extensions: Sequence[str] | None = None,
    partitioning: Any = None,
) -> Dataset:
    """The dataset of a reader. given: its ReadFilesOptions. extensions, partitioning: the defaults of the reader."""
    listing = listing_of(reader, paths, given, extensions, partitioning)
    return dataset_of_files(source(listing, given.get("on_bad_file", "raise")), given.get("shuffle"))


def listing_of(
    reader: str, paths: Any, given: Mapping[str, Any], extensions: Sequence[str] | None, partitioning: Any
) -> Listing:
    check_others(reader, {name: value for name, value in given.items() if name not in ReadFilesOptions.__annotations__})
    selection = select(
        reader,
        paths,
        given.get("filesystem"),
        given.get("file_extensions", extensions),
        given.get("ignore_missing_paths", False),
        given.get("partition_filter"),
        given.get("skip_paths"),
        given.get("arrow_open_stream_args"),
    )
    partitioning = given.get("partitioning", partitioning)
    if partitioning is not None and partitioning != "hive" and not isinstance(partitioning, ds.Partitioning):
        raise _core.ConfigError(
            f"{reader}: partitioning = {partitioning!r}: expected 'hive', one of pyarrow.dataset's, or None"
        )
    return Listing(selection, partitioning, given.get("include_paths", False))


def dataset_of_files(source: FileSource, shuffle: Any) -> Dataset:
    source.files()  # missing files raise now, not when training starts
    if source._on_bad_file not in ("raise", "skip"):
        raise _core.ConfigError(f"{source.name}: on_bad_file = {source._on_bad_file!r}: expected 'raise' or 'skip'")
    dataset = source.dataset()
    if shuffle is None:
        return dataset
    if shuffle != "files" and not hasattr(shuffle, "seed"):
        raise _core.ConfigError(
            f"{source.name}: shuffle = {shuffle!r}: expected 'files', FileShuffleConfig(...) or None"
        )
    seed = getattr(shuffle, "seed", None)
    shuffled = dataset.randomize_block_order(seed=seed)
    if seed is None or getattr(shuffle, "reseed_after_execution", True):
        return shuffled
    from trireme.data._derived import ordered

    return ordered(shuffled._plan).source.dataset()  # the same order in every epoch


def check_others(reader: str, others: Mapping[str, Any]) -> None:
    """Accepts Ray's keywords that have no effect here; any other raises an error."""
    for name in others:
        if name not in _WITHOUT_MEANING:
            raise _core.ConfigError(f"{reader}() has no argument {name!r}")


class FileShuffleConfig:
    """`shuffle=FileShuffleConfig(seed=...)`: the same file orders every time the script runs.

    reseed_after_execution: a new order in every epoch; False, with a seed: the same order in every epoch.
    """

    def __init__(self, seed: int | None = None, reseed_after_execution: bool = True) -> None:
        if not isinstance(reseed_after_execution, bool):
            raise _core.ConfigError(
                f"FileShuffleConfig: reseed_after_execution = {reseed_after_execution!r}: expected True or False"
            )
        self.seed = seed
        self.reseed_after_execution = reseed_after_execution


def in_threads(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Raises the first error, in the order of the items."""
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(_THREADS, len(items))) as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def check_same(reader: str, file: File, schema: pa.Schema, first: File, expected: pa.Schema) -> None:
    """Raises a DataError for the first expected column that the file lacks, or has with another type."""
    for field in expected:
        index = schema.get_field_index(field.name)
        if index >= 0 and schema.field(index).type == field.type:
            continue
        here = "missing" if index < 0 else str(schema.field(index).type)
        raise DataError(
            f"{reader}: column {field.name!r} is {here} in {file.shown} and {field.type} in {first.shown}: read them "
            "separately and convert one of them, or omit the column (columns=[...])"
        )


def _folder(name: str) -> str:
    return name.rpartition("/")[0] + "/"


def _partition_type(values: Sequence[str | None]) -> pa.DataType:
    try:
        numbers = [int(value) for value in values if value is not None and value != _NO_VALUE]
    except ValueError:
        return pa.string()
    if not numbers:
        return pa.string()
    return pa.int32() if all(-(2**31) <= number < 2**31 for number in numbers) else pa.int64()


def _partition_scalar(value: str | None, kind: pa.DataType) -> pa.Scalar:
    if value is None or value == _NO_VALUE:
        return pa.scalar(None, kind)
    return pa.scalar(value if pa.types.is_string(kind) else int(value), kind)
