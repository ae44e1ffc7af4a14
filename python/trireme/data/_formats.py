"""Batch formats: dicts of arrays, DataFrames, tables, rows."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from trireme._tables import import_pandas
from trireme.data._column_ops import require_columns
from trireme.data._fragment import DataError
from trireme.data._tensors import RaggedTensorType, is_number, numpy_of, objects_of, rows_of

if TYPE_CHECKING:
    from trireme.data._iterator import Batches, DataIterator


class LazyBatch:
    """A batch of the core. Converted to pyarrow only if needed: most columns are arrays already."""

    def __init__(self, schema: pa.Schema, batch: Any) -> None:
        self.schema = schema  # only the names are valid; the types are those of `arrow`
        self._batch = batch

    @cached_property
    def arrow(self) -> pa.RecordBatch:
        return pa.record_batch(self._batch)

    def column(self, index: int) -> pa.Array:
        return self.arrow.column(index)

    def select(self, names: list[str]) -> pa.RecordBatch:
        return self.arrow.select(names)


# A batch, and its columns that are arrays already: writable, in the same memory.
Batch = tuple[pa.RecordBatch | LazyBatch, dict[str, np.ndarray]]

FORMATS = ("default", "numpy", "pandas", "pyarrow")


def check_format(batch_format: str | None) -> None:
    if batch_format is not None and batch_format not in FORMATS:
        raise ValueError(
            f"batch_format={batch_format!r}: expected one of {', '.join(map(repr, FORMATS))}, or None for 'pyarrow'"
        )


def in_format(batch: Batch, batch_format: str | None = "default", nullable: str | None = None) -> Any:
    """A dict of arrays ("default", "numpy"), a DataFrame ("pandas"), or a pyarrow Table ("pyarrow", None).

    nullable: integers with nulls as floats with one warning ("float"), or as masked arrays ("masked").
    """
    if batch_format in ("default", "numpy"):
        return arrays_of(batch, numpy_of if nullable is None else partial(_with_nullable, nullable))
    if batch_format == "pandas":
        return pandas_frame(_arrow(batch))
    check_format(batch_format)
    return pa.Table.from_batches([_arrow(batch)])


def arrays_of(batch: Batch, convert: Callable[[pa.Array, str], np.ndarray]) -> dict[str, np.ndarray]:
    """convert: called with the columns that are no arrays yet, and their names."""
    record_batch, tensors = batch
    names = record_batch.schema.names
    return {
        name: tensors[name] if name in tensors else convert(record_batch.column(index), name)
        for index, name in enumerate(names)
    }


def check_nullable(nullable: str, batch_format: str | None) -> None:
    if nullable not in ("float", "masked"):
        raise ValueError(f"nullable={nullable!r}: expected 'float' or 'masked'")
    if nullable == "masked" and batch_format not in ("default", "numpy"):
        raise ValueError(f"nullable='masked' is for numpy batches, not for batch_format={batch_format!r}")


def _with_nullable(nullable: str, column: pa.Array, name: str) -> np.ndarray:
    if column.null_count and pa.types.is_integer(column.type):
        if nullable == "masked":
            masked: np.ndarray = np.ma.masked_array(column.fill_null(0).to_numpy(), column.is_null().to_numpy(False))
            return masked
        _warn_of_floats(name, column.type)
    return numpy_of(column, name)


_warned: set[str] = set()


def _warn_of_floats(name: str, kind: pa.DataType) -> None:
    if name not in _warned:
        _warned.add(name)
        warnings.warn(
            f"column {name!r} is {kind} and has nulls: its numpy batches are float64 with NaN for null, inexact beyond "
            "2**53; iter_batches(nullable='masked') gives masked arrays of integers",
            stacklevel=2,
        )


def pandas_frame(rows: pa.RecordBatch | pa.Table) -> Any:
    """A DataFrame; each tensor is an object."""
    pandas = import_pandas("batch_format='pandas'")
    fields = rows.schema
    tensors = [index for index, field in enumerate(fields) if _is_tensor(field.type)]
    if not tensors:
        return rows.to_pandas()
    columns = []
    for index, field in enumerate(fields):
        column = rows.column(index)
        if index in tensors:
            columns.append(pandas.Series(objects_of(numpy_of(column, field.name)), name=field.name))
        else:
            columns.append(column.to_pandas().rename(field.name))
    return pandas.concat(columns, axis=1)


class CollateFn(ABC):
    """Converts a batch to the input of a model, for iter_torch_batches() and iter_jax_batches(). Runs in the process
    that trains."""

    batch_format: ClassVar[str] = "numpy"

    @abstractmethod
    def __call__(self, batch: Any) -> Any: ...


class NumpyBatchCollateFn(CollateFn):
    """A CollateFn that takes a dict of arrays, like a plain function."""


class ArrowBatchCollateFn(CollateFn):
    """A CollateFn that takes a pyarrow Table."""

    batch_format = "pyarrow"


class PandasBatchCollateFn(CollateFn):
    """A CollateFn that takes a DataFrame."""

    batch_format = "pandas"


def check_collate(collate_fn: Callable[[Any], Any] | None, dtypes: Any) -> None:
    if collate_fn is None:
        return
    if dtypes is not None:
        raise ValueError("collate_fn and dtypes are mutually exclusive: convert the types in collate_fn")
    if isinstance(collate_fn, type) or not callable(collate_fn):
        raise ValueError(
            f"collate_fn={collate_fn!r}: expected a function that takes a dict of arrays, or an instance of a subclass "
            "of NumpyBatchCollateFn, ArrowBatchCollateFn or PandasBatchCollateFn"
        )


def collated(batch: Batch, collate_fn: Callable[[Any], Any]) -> Any:
    return collate_fn(in_format(batch, getattr(collate_fn, "batch_format", "numpy")))


def dtype_of(name: str, dtypes: Any) -> Any:
    """The dtype of a column; `dtypes` is one dtype for all columns, or a dict."""
    return dtypes.get(name) if isinstance(dtypes, dict) else dtypes


def check_dtypes(dtypes: Any, schema: pa.Schema) -> None:
    if isinstance(dtypes, dict):
        require_columns(list(dtypes), schema, "dtypes")


def tensor_arrays(batch: Batch, wants_floats: Callable[[str], bool]) -> dict[str, np.ndarray]:
    """A column has the same type in all batches."""
    return arrays_of(batch, lambda column, name: numpy_of(same_type(column, name, wants_floats(name)), name))


def same_type(column: pa.Array, name: str, wants_floats: bool) -> pa.Array:
    """Converts nulls to NaN only if floats are requested: otherwise the type would differ between batches."""
    kind = column.type
    if not column.null_count or not is_number(kind) or pa.types.is_floating(kind):
        return column
    if wants_floats:
        return column.cast(pa.float64(), safe=False)
    raise DataError(
        f"column {name!r} is {kind} and has {column.null_count} nulls in a batch: fill them "
        "(trireme.data.preprocessors.SimpleImputer), filter them out, or request floats (dtypes): nulls become NaN"
    )


def rows(batch: Batch) -> Iterator[dict[str, Any]]:
    """The rows as dicts of Python values; tensors are arrays."""
    return iter(rows_of(_arrow(batch)))


def raw_batches(iterator: DataIterator, **options: Any) -> Batches:
    """The batches of iter_batches(**options) before formatting; every iteration is an epoch."""
    from trireme.data._iterator import Batches

    return Batches(iterator, iterator.iter_batches(**options)._options, lambda batches: batches)


def _arrow(batch: Batch) -> pa.RecordBatch:
    return batch[0].arrow if isinstance(batch[0], LazyBatch) else batch[0]


def _is_tensor(kind: pa.DataType) -> bool:
    return isinstance(kind, (pa.FixedShapeTensorType, RaggedTensorType))
