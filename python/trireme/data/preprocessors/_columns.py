"""Column conversions for preprocessors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trireme.data._column_ops import one_batch, require_columns
from trireme.data._tensors import batch_of, is_number


def plain(batch: pa.RecordBatch, name: str, who: str) -> pa.Array:
    """The column, with dictionaries decoded."""
    require_columns([name], batch.schema, who)
    column = batch.column(batch.schema.get_field_index(name))
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def numeric(batch: pa.RecordBatch, name: str, who: str) -> pa.Array:
    column = plain(batch, name, who)
    kind = column.type
    if is_number(kind):
        return column
    if pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return column.cast(pa.float64())
    raise ValueError(
        f"{who}: column {name!r} is {kind}, expected numbers: remove it from the columns, or convert it to numbers "
        "first (OrdinalEncoder, OneHotEncoder, map_batches)"
    )


def as_floats(column: pa.Array) -> np.ndarray:
    """The numbers as floats; nulls are NaN."""
    values: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values


def from_floats(values: np.ndarray, like: pa.Array) -> pa.Array:
    """A column computed from `like`, with the same nulls. float32 stays float32."""
    mask = like.is_null().to_numpy(zero_copy_only=False) if like.null_count else None
    return pa.array(values, pa.float64(), mask=mask).cast(pa.float32() if like.type == pa.float32() else pa.float64())


def without_nulls(batch: pa.RecordBatch, name: str, who: str) -> pa.Array:
    column = plain(batch, name, who)
    if has_nulls(column):
        raise nulls_in(name, who)
    return column


def nulls_in(name: str, who: str) -> ValueError:
    return ValueError(f"{who}: column {name!r} has nulls: fill them first (SimpleImputer), or filter their rows out")


def has_nulls(column: pa.Array) -> bool:
    """Whether there are nulls or NaN."""
    if column.null_count:
        return True
    return bool(pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py())


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def replaced(batch: pa.RecordBatch, columns: Mapping[str, pa.Array], drop: Sequence[str] = ()) -> pa.RecordBatch:
    """Replaces existing columns, and appends new ones."""
    everything = {name: batch.column(index) for index, name in enumerate(batch.schema.names) if name not in drop}
    everything.update(columns)
    return pa.RecordBatch.from_arrays(list(everything.values()), names=list(everything))


def batch_from(data: Any) -> pa.RecordBatch:
    """Converts a dict of columns, a DataFrame, or an Arrow table or batch."""
    if isinstance(data, pa.RecordBatch):
        return data
    if isinstance(data, pa.Table):
        return one_batch(data)
    if isinstance(data, Mapping):
        return batch_of(data)
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        return batch_of({name: data[name] for name in data.columns})
    raise TypeError(
        f"expected a dict of columns, a pandas DataFrame, a pyarrow Table or RecordBatch, got {type(data).__name__}"
    )
