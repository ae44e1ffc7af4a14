"""Batches for preprocessors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from trireme.data._column_ops import one_batch
from trireme.data._tensors import as_table


def replaced(batch: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Replaces existing columns, and appends new ones."""
    everything = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
    everything.update(columns)
    return pa.RecordBatch.from_arrays(list(everything.values()), names=list(everything))


def batch_from(data: Any) -> pa.RecordBatch:
    """Converts a dict of columns, a DataFrame, or an Arrow table or batch."""
    if isinstance(data, pa.RecordBatch):
        return data
    table = None if isinstance(data, list) else as_table(data)
    if table is None:
        raise TypeError(
            f"expected a dict of columns, a pandas DataFrame, a pyarrow Table or RecordBatch, got {type(data).__name__}"
        )
    return one_batch(table)
