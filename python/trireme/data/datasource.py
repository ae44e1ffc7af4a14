"""Base classes of custom sources and sinks; names as in ray.data.datasource."""

from trireme.data._datasink import (
    BlockBasedFileDatasink,
    Datasink,
    RowBasedFileDatasink,
    TaskContext,
    WriteResult,
)
from trireme.data._datasource import BlockMetadata, Datasource, FileBasedDatasource, ReadTask
from trireme.data._file_source import FileShuffleConfig
from trireme.data._paths import PathPartitionFilter

__all__ = [
    "BlockBasedFileDatasink",
    "BlockMetadata",
    "Datasink",
    "Datasource",
    "FileBasedDatasource",
    "FileShuffleConfig",
    "PathPartitionFilter",
    "ReadTask",
    "RowBasedFileDatasink",
    "TaskContext",
    "WriteResult",
]
