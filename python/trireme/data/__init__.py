"""Datasets for training: streamed, in an order that failures and resizes do not change. Names as in Ray Data."""

try:
    import numpy as _numpy  # noqa: F401
    import pyarrow as _pyarrow  # noqa: F401
except ImportError as error:
    raise ImportError(f'trireme.data needs pyarrow and numpy: pip install "trireme[data]" ({error})') from error

from importlib import import_module as _import_module

from trireme.data._columnar_files import read_avro, read_orc
from trireme.data._context import DataContext, ExecutionOptions, ExecutionResources, RandomSeedConfig
from trireme.data._dataset import Dataset, MaterializedDataset
from trireme.data._datasink import BlockBasedFileDatasink, Datasink, RowBasedFileDatasink, SaveMode
from trireme.data._datasource import BlockMetadata, Datasource, FileBasedDatasource, ReadTask, read_datasource
from trireme.data._exchange import (
    from_arrow_refs,
    from_blocks,
    from_daft,
    from_dask,
    from_modin,
    from_numpy_refs,
    from_pandas_refs,
    from_spark,
)
from trireme.data._expressions import col, lit
from trireme.data._file_source import FileShuffleConfig
from trireme.data._foreign import from_huggingface, from_tf, from_torch
from trireme.data._formats import ArrowBatchCollateFn, CollateFn, NumpyBatchCollateFn, PandasBatchCollateFn
from trireme.data._fragment import DataError, Fragment, Source
from trireme.data._functions import ActorPoolStrategy, TaskPoolStrategy
from trireme.data._grouped import GroupedData
from trireme.data._images import read_images
from trireme.data._iterator import DataIterator
from trireme.data._lakehouse import read_delta, read_iceberg, read_lance
from trireme.data._media import read_audio, read_videos
from trireme.data._memory import from_arrow, from_items, from_numpy, from_pandas, range, range_tensor
from trireme.data._mix import MixStoppingCondition
from trireme.data._numpy_files import read_numpy
from trireme.data._parquet import read_parquet
from trireme.data._paths import PathPartitionFilter
from trireme.data._sql import read_sql
from trireme.data._summary import DatasetSummary
from trireme.data._text_files import read_csv, read_json, read_text
from trireme.data._tfrecords import read_tfrecords
from trireme.data._webdataset import read_webdataset
from trireme.data._whole_files import read_binary_files
from trireme.data._write import FilenameProvider

# Ray's older names.
DatasetContext = DataContext
DatasetIterator = DataIterator


def __getattr__(name: str) -> object:
    """Imports submodules on first access, as `ray.data` does; most scripts need none."""
    if name in _SUBMODULES:
        return _import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES})


_SUBMODULES = ("aggregate", "block", "datasource", "expressions", "preprocessors")

__all__ = [
    "ActorPoolStrategy",
    "ArrowBatchCollateFn",
    "BlockBasedFileDatasink",
    "BlockMetadata",
    "CollateFn",
    "DataContext",
    "DataError",
    "DataIterator",
    "Dataset",
    "DatasetContext",
    "DatasetIterator",
    "DatasetSummary",
    "Datasink",
    "Datasource",
    "ExecutionOptions",
    "ExecutionResources",
    "FileBasedDatasource",
    "FileShuffleConfig",
    "FilenameProvider",
    "Fragment",
    "GroupedData",
    "MaterializedDataset",
    "MixStoppingCondition",
    "NumpyBatchCollateFn",
    "PandasBatchCollateFn",
    "PathPartitionFilter",
    "RandomSeedConfig",
    "ReadTask",
    "RowBasedFileDatasink",
    "SaveMode",
    "Source",
    "TaskPoolStrategy",
    "col",
    "from_arrow",
    "from_arrow_refs",
    "from_blocks",
    "from_daft",
    "from_dask",
    "from_huggingface",
    "from_items",
    "from_modin",
    "from_numpy",
    "from_numpy_refs",
    "from_pandas",
    "from_pandas_refs",
    "from_spark",
    "from_tf",
    "from_torch",
    "lit",
    "range",
    "range_tensor",
    "read_audio",
    "read_avro",
    "read_binary_files",
    "read_csv",
    "read_datasource",
    "read_delta",
    "read_iceberg",
    "read_images",
    "read_json",
    "read_lance",
    "read_numpy",
    "read_orc",
    "read_parquet",
    "read_sql",
    "read_text",
    "read_tfrecords",
    "read_videos",
    "read_webdataset",
]
