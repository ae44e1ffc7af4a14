"""Datasets of other libraries: PyTorch, Hugging Face, TensorFlow."""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trireme import _core
from trireme.data._fragment import DataError, Fragment, Source
from trireme.data._memory import TableSource, num_fragments, plain_table, rows_of_batch
from trireme.data._promotion import conform
from trireme.data._tensors import batch_of_rows, fixed_tensors

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

# The number of items that are read to determine the columns.
_LOOKED_AT = 8
_FRAGMENT_ITEMS = 1024
_BATCH_ITEMS = 64


def from_torch(dataset: Any, local_read: bool = False) -> Dataset:
    """A map-style torch dataset. Workers read items by index, on demand.

    A dict becomes columns, a tuple the columns "item_0", "item_1" (or the names of its fields), any other item "item".
    """
    indexed = hasattr(dataset, "__getitem__") and not _is_iterable_dataset(dataset)
    if not indexed or not hasattr(dataset, "__len__"):
        lacking = "length" if indexed else "index"
        raise _core.ConfigError(
            f"from_torch: {type(dataset).__name__} has no {lacking}: it can only be read from its beginning, so a run "
            "cannot resume after a failure. Pass a map-style dataset (__getitem__ and __len__), or use "
            "from_items(list(dataset)) if it is finite and fits into memory"
        )
    return ItemSource(dataset, "from_torch").dataset()


def from_huggingface(
    dataset: Any, parallelism: int = -1, concurrency: int | None = None, override_num_blocks: int | None = None
) -> Dataset:
    """A datasets.Dataset: its Arrow table, memory-mapped if it is in files."""
    if hasattr(dataset, "keys") and not hasattr(dataset, "features"):
        splits = ", ".join(map(str, dataset.keys()))
        raise _core.ConfigError(f"from_huggingface: got all splits ({splits}); pass one of them: dataset['train']")
    if not hasattr(dataset, "data") or not hasattr(dataset, "with_format"):
        raise _core.ConfigError(
            f"from_huggingface: expected a datasets.Dataset, got {type(dataset).__name__}. A streaming dataset "
            "has no length and no index: load it without streaming=True, or read its files (read_parquet(...))"
        )
    count = num_fragments(parallelism, override_num_blocks)
    if dataset.cache_files:
        return MappedSource(dataset, count).dataset()
    return TableSource(_tensors_of(dataset.with_format("arrow")[:]), "from_huggingface", count).dataset()


def from_tf(dataset: Any) -> Dataset:
    """A tf.data.Dataset, read once and kept in memory: it cannot be sent to other processes."""
    tf = importlib.import_module("tensorflow")
    if not isinstance(dataset, tf.data.Dataset):
        raise _core.ConfigError(f"from_tf: expected a tf.data.Dataset, got {type(dataset).__name__}")
    length = int(dataset.cardinality())
    if length == tf.data.INFINITE_CARDINALITY:
        raise _core.ConfigError("from_tf: the dataset is infinite; limit it: dataset.take(n)")
    if length < 0:
        raise _core.ConfigError(
            "from_tf: the length of the dataset is unknown; set it: "
            "dataset.apply(tf.data.experimental.assert_cardinality(n))"
        )
    rows = [row_of(item) for item in dataset.as_numpy_iterator()]
    return TableSource(pa.Table.from_batches([batch_of_rows(rows)]), "from_tf").dataset()


def row_of(item: Any) -> Mapping[str, Any]:
    """The columns of an item."""
    if isinstance(item, Mapping):
        return item
    if isinstance(item, (tuple, list)):
        names = getattr(item, "_fields", None) or [f"item_{index}" for index in builtins.range(len(item))]
        return dict(zip(names, item, strict=True))
    return {"item": item}


class ItemSource(Source):
    """Anything with a length and an index."""

    def __init__(self, items: Any, name: str) -> None:
        self.name = name
        self._items = items
        self._schema: pa.Schema | None = None
        self._item_bytes = 0.0

    def schema(self) -> pa.Schema:
        if self._schema is None:
            count = min(len(self._items), _LOOKED_AT)
            if count == 0:
                raise DataError(f"{self.name}: the dataset is empty")
            batch = _read(self._items, 0, count, self.name)
            self._item_bytes = batch.nbytes / count
            self._schema = batch.schema
        return self._schema

    def fragments(self) -> list[Fragment]:
        schema = self.schema()
        total = len(self._items)
        step = rows_of_batch(self._item_bytes, _FRAGMENT_ITEMS)
        return [
            ItemFragment(self._items, start, min(step, total - start), schema, self._item_bytes, self.name)
            for start in builtins.range(0, total, step)
        ]


class ItemFragment(Fragment):
    def __init__(self, items: Any, start: int, rows: int, schema: pa.Schema, item_bytes: float, name: str) -> None:
        self._items = items
        self._start = start
        self._schema = schema
        self._item_bytes = item_bytes
        self.rows: int = rows
        self.name = f"{name}, items {start} to {start + rows - 1}"
        self.size_bytes = int(rows * item_bytes)

    def open(self, columns: Sequence[str] | None = None, row: int = 0) -> tuple[pa.RecordBatchReader, int]:
        names = self._schema.names if columns is None else list(columns)
        schema = pa.schema([self._schema.field(name) for name in names])
        return pa.RecordBatchReader.from_batches(schema, self._batches(names, row)), row

    def _batches(self, names: Sequence[str], row: int) -> Iterator[pa.RecordBatch]:
        end = self._start + self.rows
        step = rows_of_batch(self._item_bytes, _BATCH_ITEMS)
        for begin in builtins.range(self._start + row, end, step):
            batch = _read(self._items, begin, min(begin + step, end), self.name)
            yield conform(batch, self._schema, f"{self.name}: items from {begin} on").select(list(names))


class MappedSource(Source):
    """A Hugging Face dataset whose table is in files: each reader maps them."""

    def __init__(self, dataset: Any, count: int | None) -> None:
        self.name = "from_huggingface"
        self._dataset = dataset.with_format("arrow")
        self._count = count

    def schema(self) -> pa.Schema:
        return _tensors_of(self._dataset[:1]).schema

    def fragments(self) -> list[Fragment]:
        schema = self.schema()
        total = len(self._dataset)
        row_bytes = self._dataset.data.nbytes / max(self._dataset.data.num_rows, 1)
        step = -(-total // self._count) if self._count else rows_of_batch(row_bytes)
        return [
            MappedFragment(self._dataset, start, min(step, total - start), schema, row_bytes)
            for start in builtins.range(0, total, max(step, 1))
        ]


class MappedFragment(Fragment):
    def __init__(self, dataset: Any, start: int, rows: int, schema: pa.Schema, row_bytes: float) -> None:
        self._dataset = dataset
        self._start = start
        self._schema = schema
        self.rows: int = rows
        self.name = f"from_huggingface, rows {start} to {start + rows - 1}"
        self.size_bytes = int(rows * row_bytes)
        self.version = str(getattr(dataset, "_fingerprint", ""))

    def open(self, columns: Sequence[str] | None = None, row: int = 0) -> tuple[pa.RecordBatchReader, int]:
        table = _tensors_of(self._dataset[self._start + row : self._start + self.rows]).cast(self._schema)
        if columns is not None:
            table = table.select(list(columns))
        return table.to_reader(max_chunksize=rows_of_batch(table.nbytes / max(table.num_rows, 1))), row


def _is_iterable_dataset(dataset: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(dataset, torch.utils.data.IterableDataset)


def _read(items: Any, begin: int, end: int, name: str) -> pa.RecordBatch:
    rows = []
    for index in builtins.range(begin, end):
        try:
            rows.append(row_of(items[index]))
        except Exception as error:
            raise DataError(f"{name}: item {index} raised {type(error).__name__}: {error}") from error
    return batch_of_rows(rows)


def _tensors_of(table: pa.Table) -> pa.Table:
    """Converts Hugging Face's multi-dimensional arrays to Arrow tensors."""
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        shape = getattr(column.type, "shape", None)
        if isinstance(column.type, pa.FixedShapeTensorType) or not shape or None in shape:
            columns[name] = column
            continue
        values = column.combine_chunks().storage if isinstance(column, pa.ChunkedArray) else column.storage
        while isinstance(values, pa.ListArray):
            values = values.flatten()
        columns[name] = fixed_tensors(values.to_numpy(zero_copy_only=False).reshape(len(column), *shape))
    return plain_table(pa.table(columns))
