"""Methods that write a dataset to a Datasink, or to files of other formats."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from typing import Any, Unpack

from trireme.data._column_ops import require_columns
from trireme.data._datasink import Datasink, write_to
from trireme.data._file_sinks import ImageDatasink, SqlDatasink, TfRecordWriter, WebDatasetWriter, check_encoder
from trireme.data._file_writers import check_options
from trireme.data._lakehouse import DeltaDatasink, IcebergDatasink, LanceDatasink
from trireme.data._methods import DatasetMethods, check_resources
from trireme.data._write import FileOptions, Target, write_files


class SinkMethods(DatasetMethods):
    def write_datasink(self, datasink: Datasink[Any], *, concurrency: int | None = None, **resources: Any) -> None:
        """Passes all rows to a Datasink, in order, in this process. concurrency: accepted, without effect."""
        check_resources("write_datasink", resources)
        write_to(datasink, self._plan)

    def write_images(
        self, path: str | os.PathLike[str], column: str, file_format: str = "png", **options: Unpack[FileOptions]
    ) -> None:
        """Writes each row's image, an array [height, width, channels] of uint8, to a file. Needs trireme[images].

        Of the FileOptions, those that divide rows among files have no effect.
        """
        check_options("write_images", options, set(FileOptions.__annotations__))
        require_columns([column], self._plan.schema(), "write_images(column)")
        given = {name: options[name] for name in ("filesystem", "filename_provider", "mode") if name in options}
        stream_args = options.get("arrow_open_stream_args")
        write_to(ImageDatasink(path, column, file_format, open_stream_args=stream_args, **given), self._plan)

    def write_tfrecords(self, path: str | os.PathLike[str], **options: Unpack[FileOptions]) -> None:
        """Writes TFRecord files. Features are int64, float32 (floats lose precision) and bytes; nulls are left out."""
        target = Target("write_tfrecords", path, ".tfrecords", options)
        write_files(self._plan, target, lambda sink, schema: TfRecordWriter(sink))

    def write_webdataset(
        self,
        path: str | os.PathLike[str],
        *,
        encoder: bool | Callable[[dict[str, Any]], dict[str, Any]] | None = True,
        **options: Unpack[FileOptions],
    ) -> None:
        """Writes tar files: each column is a file of the sample, with the column's name as suffix.

        "__key__" names the sample; default: its number. encoder: True encodes by suffix (json, npy, cls, txt, images);
        a function returns the sample as a dict of bytes; None: all values are bytes.
        """
        check_encoder(encoder)
        target = Target("write_webdataset", path, ".tar", options)
        numbers = itertools.count()
        write_files(self._plan, target, lambda sink, schema: WebDatasetWriter(sink, encoder, numbers))

    def write_sql(
        self, sql: str, connection_factory: Callable[[], Any], *, concurrency: int | None = None, **resources: Any
    ) -> None:
        """Executes a statement such as "INSERT INTO t VALUES (?, ?)" for each row, in one transaction."""
        check_resources("write_sql", resources)
        write_to(SqlDatasink(sql, connection_factory), self._plan)

    def write_delta(self, path: str, *, mode: str = "append", **write_options: Any) -> None:
        """Writes a Delta Lake table in one commit. Other arguments: those of deltalake's write_deltalake().

        Needs trireme[delta]."""
        write_to(DeltaDatasink(path, mode, write_options), self._plan)

    def write_iceberg(
        self,
        table_identifier: str,
        catalog_kwargs: Mapping[str, Any] | None = None,
        snapshot_properties: Mapping[str, str] | None = None,
        mode: Any = "append",
        *,
        concurrency: int | None = None,
        **resources: Any,
    ) -> None:
        """Appends to an Iceberg table, or overwrites it, in one snapshot. Needs trireme[iceberg]."""
        check_resources("write_iceberg", resources)
        write_to(IcebergDatasink(table_identifier, catalog_kwargs, mode, snapshot_properties), self._plan)

    def write_lance(self, path: str, *, mode: Any = "create", **write_options: Any) -> None:
        """Writes a Lance dataset. mode: "create", "append" or "overwrite". Other arguments: those of
        lance.write_dataset(). Needs trireme[lance]."""
        write_to(LanceDatasink(path, mode, write_options), self._plan)
