"""Batches on the driver of a dataset whose rows are not counted, as they are read in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trireme._consumers import ReportingLoop
from trireme.data._cut import exact_batches
from trireme.data._formats import Batch
from trireme.data._iterator import DataIterator, Part
from trireme.data._planned import Planned
from trireme.data._tensors import is_number, numpy_of, tensor_shape

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

_NEED_COUNTS = ("local_shuffle_buffer_size", "global_batch_size", "pad_last")


class UncountedIterator(DataIterator):
    """Counts rows only if needed. Has no position to store; Dataset.iterator() does."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._part = Part(virtual_shards=1)
        self._made = self._reads = None
        self._passes = set()

    def __repr__(self) -> str:
        return f"DataIterator({self._dataset!r}, rows not counted)"

    @property
    def _planned(self) -> Planned:  # type: ignore[override]
        return self._dataset.plan()

    def _pass(self, options: dict[str, Any], ahead: int = 0, loop: ReportingLoop | None = None) -> Iterator[Batch]:
        if any(options[name] for name in _NEED_COUNTS):
            yield from self._dataset.iterator()._pass(options)
            return
        size = options["batch_size"]
        for batch in exact_batches(self._dataset._stream(), size):
            if batch.num_rows == size or not options["drop_last"]:
                yield batch, _arrays(batch)


def _arrays(batch: pa.RecordBatch) -> dict[str, np.ndarray]:
    """Numbers as writable arrays, as in the batches of every other dataset."""
    arrays: dict[str, np.ndarray] = {}
    for index, field in enumerate(batch.schema):
        if batch.column(index).null_count == 0 and (is_number(field.type) or tensor_shape(field.type) is not None):
            values = numpy_of(batch.column(index), field.name)
            arrays[field.name] = values if values.flags.writeable else values.copy()
    return arrays
