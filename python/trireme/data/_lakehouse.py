"""Tables of Delta Lake, Iceberg and Lance: readers and sinks over their own libraries."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trireme import _core
from trireme._extras import import_extra
from trireme.data._datasink import Datasink, TaskContext
from trireme.data._datasource import BlockMetadata, Datasource, ReadTask, TaskSource
from trireme.data._file_source import check_others
from trireme.data._fragment import DataError
from trireme.data._memory import rows_of_batch
from trireme.data._promotion import fixed

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset


class _TableDatasink(Datasink[None]):
    """One commit with all rows: readers see all of them or none."""

    supports_distributed_writes = False
    _schema: pa.Schema | None = None

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        self._schema = schema

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> None:
        batches = (batch for table in blocks for batch in table.to_batches())
        first = next(batches, None)
        schema = self._schema if first is None else first.schema
        rows = fixed(batches if first is None else itertools.chain([first], batches), schema, ctx.op_name)
        self._commit(pa.RecordBatchReader.from_batches(schema, rows))

    @abstractmethod
    def _commit(self, rows: pa.RecordBatchReader) -> None: ...


def read_delta(
    path: str,
    version: int | None = None,
    *,
    columns: Sequence[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    filesystem: Any = None,
    **others: Any,
) -> Dataset:
    """A Delta Lake table, or an older version of it. A fragment is a row group. Needs trireme[delta]."""
    deltalake = import_extra("read_delta", "deltalake", "delta")
    options = None if storage_options is None else dict(storage_options)
    try:
        table = deltalake.DeltaTable(path, version=version, storage_options=options)
    except deltalake.exceptions.DeltaError as error:
        raise DataError(f"read_delta: {path}: {error}") from error
    return _dataset(DeltaDatasource(table, filesystem), "read_delta", columns, others)


class DeltaDatasource(Datasource):
    """The version of the table when it is created: later commits do not change the rows of a run."""

    def __init__(self, table: Any, filesystem: Any = None) -> None:
        self._dataset = table.to_pyarrow_dataset(filesystem=filesystem)
        self._version = f"{table.table_uri}@{table.version()}"

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None) -> list[ReadTask]:
        schema = self._dataset.schema
        fragments = sorted(self._dataset.get_fragments(), key=lambda fragment: fragment.path)
        return [
            ReadTask(
                partial(part.to_batches, schema=schema, use_threads=False),
                BlockMetadata(
                    sum(group.num_rows for group in part.row_groups),
                    sum(group.total_byte_size for group in part.row_groups),
                    schema,
                    [part.path],
                ),
                version=f"{self._version}, {part.path}",
            )
            for fragment in fragments
            for part in fragment.split_by_row_group()
        ]


class DeltaDatasink(_TableDatasink):
    def __init__(self, path: str, mode: str, options: Mapping[str, Any]) -> None:
        self._deltalake = import_extra("write_delta", "deltalake", "delta")
        self._path = path
        self._mode = checked_mode("write_delta", mode, ("append", "overwrite", "error", "ignore"))
        self._options = dict(options)

    def _commit(self, rows: pa.RecordBatchReader) -> None:
        self._deltalake.write_deltalake(self._path, rows, mode=self._mode, **self._options)


def read_iceberg(
    *,
    table_identifier: str,
    row_filter: Any = None,
    selected_fields: Sequence[str] = ("*",),
    snapshot_id: int | None = None,
    scan_kwargs: Mapping[str, Any] | None = None,
    catalog_kwargs: Mapping[str, Any] | None = None,
    **others: Any,
) -> Dataset:
    """An Iceberg table: its current snapshot, or another. catalog_kwargs: those of pyiceberg's load_catalog().

    A fragment is a data file. Needs trireme[iceberg].
    """
    scan = dict(scan_kwargs or {})
    if row_filter is not None:
        scan["row_filter"] = row_filter
    scan["selected_fields"] = tuple(selected_fields)
    if snapshot_id is not None:
        scan["snapshot_id"] = snapshot_id
    table = _iceberg_table("read_iceberg", table_identifier, catalog_kwargs)
    return _dataset(IcebergDatasource(table, scan), "read_iceberg", None, others)


class IcebergDatasource(Datasource):
    """The snapshot that is current when it is created."""

    def __init__(self, table: Any, scan: Mapping[str, Any]) -> None:
        options = dict(scan)
        snapshot = table.current_snapshot()
        if "snapshot_id" not in options and snapshot is not None:
            options["snapshot_id"] = snapshot.snapshot_id
        self._table = table
        self._scan = table.scan(**options)
        self._filtered = "row_filter" in options

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None) -> list[ReadTask]:
        arrow = import_extra("read_iceberg", "pyiceberg.io.pyarrow", "iceberg")
        scan = self._scan
        schema = _small_types(arrow.schema_to_pyarrow(scan.projection(), include_field_ids=False))
        reader = arrow.ArrowScan(
            self._table.metadata, self._table.io, scan.projection(), scan.row_filter, scan.case_sensitive
        )
        tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
        read_tasks = [
            ReadTask(
                partial(reader.to_record_batches, [task]),
                BlockMetadata(
                    None if self._filtered or task.delete_files else task.file.record_count,
                    None,
                    schema,
                    [task.file.file_path],
                ),
                version=f"{scan.snapshot_id}, {task.file.file_path}",
            )
            for task in tasks
        ]
        return read_tasks or [ReadTask(lambda: [], BlockMetadata(0, 0, schema))]


def _small_types(schema: pa.Schema) -> pa.Schema:
    """string for large_string: the files have either."""
    large = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return pa.schema([pa.field(field.name, large.get(field.type, field.type)) for field in schema])


class IcebergDatasink(_TableDatasink):
    def __init__(
        self,
        identifier: str,
        catalog: Mapping[str, Any] | None,
        mode: Any,
        snapshot_properties: Mapping[str, str] | None,
    ) -> None:
        self._table = _iceberg_table("write_iceberg", identifier, catalog)
        self._mode = checked_mode("write_iceberg", mode, ("append", "overwrite"))
        self._properties = dict(snapshot_properties or {})

    def _commit(self, rows: pa.RecordBatchReader) -> None:
        commit = self._table.append if self._mode == "append" else self._table.overwrite
        # pyiceberg writes a stream only to tables without partitions.
        partitioned = bool(self._table.spec().fields)
        commit(rows.read_all() if partitioned else rows, snapshot_properties=self._properties)


def _iceberg_table(what: str, identifier: str, catalog: Mapping[str, Any] | None) -> Any:
    catalogs = import_extra(what, "pyiceberg.catalog", "iceberg")
    errors = import_extra(what, "pyiceberg.exceptions", "iceberg")
    options = dict(catalog or {})
    try:
        return catalogs.load_catalog(options.pop("name", "default"), **options).load_table(identifier)
    except errors.NoSuchTableError as error:
        raise DataError(f"{what}: table_identifier={identifier!r}: {error}") from error


def read_lance(
    uri: str,
    *,
    version: int | str | None = None,
    columns: Sequence[str] | None = None,
    filter: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    scanner_options: Mapping[str, Any] | None = None,
    **others: Any,
) -> Dataset:
    """A Lance dataset. filter: an SQL condition. A fragment is one of Lance's. Needs trireme[lance]."""
    import_extra("read_lance", "lance", "lance")
    options = dict(scanner_options or {})
    if filter is not None:
        options["filter"] = filter
    if columns is not None:
        options["columns"] = list(columns)
    return _dataset(LanceDatasource(uri, version, storage_options, options), "read_lance", None, others)


class LanceDatasource(Datasource):
    """The version that is current when it is created."""

    def __init__(
        self, uri: str, version: Any, storage_options: Mapping[str, str] | None, options: Mapping[str, Any]
    ) -> None:
        self._uri = uri
        self._storage = None if storage_options is None else dict(storage_options)
        self._options = dict(options)
        try:
            self._lance = _lance_dataset(uri, version, self._storage)
        except (ValueError, OSError) as error:
            raise DataError(f"read_lance: {uri}: {error}") from error
        self._version = self._lance.version

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None) -> list[ReadTask]:
        schema = self._lance.scanner(**self._options).projected_schema
        counted = "filter" not in self._options
        return [
            ReadTask(
                partial(_read_lance, self._uri, self._version, self._storage, fragment.fragment_id, self._options),
                BlockMetadata(fragment.count_rows() if counted else None, None, schema, [self._uri]),
                version=f"{self._uri}@{self._version}",
            )
            for fragment in self._lance.get_fragments()
        ]


def _lance_dataset(uri: str, version: Any, storage_options: dict[str, str] | None) -> Any:
    return import_extra("read_lance", "lance", "lance").dataset(uri, version, storage_options=storage_options)


def _read_lance(
    uri: str, version: Any, storage: dict[str, str] | None, fragment: int, options: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    # Lance's objects cannot be sent to other processes.
    dataset = _lance_dataset(uri, version, storage)
    yield from dataset.get_fragment(fragment).to_batches(**{"batch_size": rows_of_batch(0, 8192), **options})


class LanceDatasink(_TableDatasink):
    def __init__(self, uri: str, mode: Any, options: Mapping[str, Any]) -> None:
        self._lance = import_extra("write_lance", "lance", "lance")
        self._uri = uri
        self._mode = checked_mode("write_lance", mode, ("create", "append", "overwrite"))
        self._options = dict(options)

    def _commit(self, rows: pa.RecordBatchReader) -> None:
        self._lance.write_dataset(rows, self._uri, schema=rows.schema, mode=self._mode, **self._options)


def checked_mode(what: str, mode: Any, modes: Sequence[str]) -> str:
    found = str(getattr(mode, "value", mode)).lower()
    if found not in modes:
        raise _core.ConfigError(f"{what}: mode = {mode!r}: expected one of {', '.join(map(repr, modes))}")
    return found


def _dataset(datasource: Datasource, name: str, columns: Sequence[str] | None, others: Mapping[str, Any]) -> Dataset:
    check_others(name, others)
    dataset = TaskSource(datasource, 1, name).dataset()
    return dataset if columns is None else dataset.select_columns(list(columns))
