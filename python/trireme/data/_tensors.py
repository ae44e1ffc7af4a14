"""Columns of numbers, text and tensors: conversion to Arrow, and back to numpy and to rows."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from trireme._core import count_of
from trireme.data._fragment import DataError


class RaggedTensorType(pa.ExtensionType):  # type: ignore[misc]
    """Tensors whose shapes differ between rows. Tensors of one shape are Arrow's own fixed_shape_tensor."""

    def __init__(self, value_type: pa.DataType) -> None:
        self.value_type = value_type
        storage = pa.struct([("data", pa.list_(value_type)), ("shape", pa.list_(pa.int32()))])
        super().__init__(storage, "trireme.ragged_tensor")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> RaggedTensorType:
        return cls(storage_type.field("data").type.value_type)


try:
    pa.register_extension_type(RaggedTensorType(pa.float32()))
except pa.ArrowKeyError:  # this module was loaded before
    pa.unregister_extension_type("trireme.ragged_tensor")
    pa.register_extension_type(RaggedTensorType(pa.float32()))


def array_of(values: Any, name: str = "") -> pa.Array:
    """Converts arrays, lists, Series, torch and other tensors to a column: one value, or one tensor, for each row.

    Tensors of one shape become fixed_shape_tensor. A numpy array of objects may have other shapes in the next batch,
    even if they are equal here: its vectors become lists, other tensors ragged tensors.
    """
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, pa.ChunkedArray):
        return one_chunk(values)
    if isinstance(values, (str, bytes, Mapping)) or values is None:
        raise DataError(f"{_column(name)} is {_shown(values)}: expected an array or a list with a value for each row")
    try:
        if _is_series(values):
            return _of_series(values, name)
        if not isinstance(values, (list, tuple, np.ndarray)):
            values = _as_numpy(values) if _is_tensor(values) else list(values)
        if isinstance(values, np.ndarray):
            return _of_objects(values, name, True) if values.dtype == object else _of_numpy(values, name)
        return _of_objects(values, name, False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{_column(name)}: {_why(values, error)}") from error


def numpy_of(column: pa.Array | pa.ChunkedArray, name: str = "") -> np.ndarray:
    """The column as an array, without a copy if possible; it may be read-only.

    Rows of one shape become one array [rows, ...]; text, lists, ragged tensors and structs an array of objects. Nulls
    are NaN in numbers and None in objects.
    """
    array = one_chunk(column) if isinstance(column, pa.ChunkedArray) else column
    kind = array.type
    if pa.types.is_dictionary(kind):
        return numpy_of(array.dictionary_decode(), name)
    if isinstance(kind, RaggedTensorType):
        return objects_of(_ragged_values(array))
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.FixedShapeTensorType):
        return numpy_of(array.storage, name)
    if tensor_shape(kind) is not None:
        return _fixed_values(array, name)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list_values(array, name)
    if pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_null(kind):
        return objects_of(array.to_pylist())
    values: np.ndarray = array.to_numpy(zero_copy_only=False)
    return values


def batch_of(columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Converts a dict of columns to a batch. Errors name the invalid column."""
    arrays: dict[str, pa.Array] = {}
    for name, values in columns.items():
        if not isinstance(name, str):
            raise DataError(f"column {name!r}: column names must be strings, got {_kind(name)}")
        arrays[name] = array_of(values, name)
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        first = next(iter(lengths))
        other = next(name for name in lengths if lengths[name] != lengths[first])
        raise DataError(
            f"column {other!r} has {count_of(lengths[other], 'row')} and column {first!r} has {lengths[first]}: "
            "all columns of a batch need the same number"
        )
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows as dicts of Python values; tensors are numpy arrays."""
    return rows_from(columns_of(batch))


def columns_of(batch: pa.RecordBatch) -> dict[str, list[Any]]:
    return {name: _row_values(batch.column(index)) for index, name in enumerate(batch.schema.names)}


def rows_from(columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def batch_of_rows(rows: Sequence[Mapping[str, Any]], known: Mapping[str, pa.Array] | None = None) -> pa.RecordBatch:
    """Converts a list of dicts to a batch; missing keys become null. known: columns that are converted already."""
    known = known or {}
    names: dict[str, None] = {}
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise DataError(f"row {index} is {_shown(row)}: expected a dict with a value for each column")
        names.update(dict.fromkeys(row))
    return batch_of({name: known[name] if name in known else [row.get(name) for row in rows] for name in names})


def is_frame(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "columns")


def as_table(value: Any) -> pa.Table | None:
    """A table, a record batch, a DataFrame, a dict of columns, a list of rows, or an object with `__arrow_c_stream__`
    as a table; None for any other value."""
    if isinstance(value, pa.Table):
        return value
    if is_frame(value):
        value = {str(name): value[name] for name in value.columns}
    if isinstance(value, Mapping):
        value = batch_of(value)
    elif isinstance(value, list):
        value = batch_of_rows(value)
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    return pa.table(value) if hasattr(value, "__arrow_c_stream__") else None


def tensor_shape(kind: pa.DataType) -> tuple[int, ...] | None:
    """The shape of a row, if the type fixes it for all rows; otherwise None."""
    if isinstance(kind, pa.FixedShapeTensorType):
        order = kind.permutation or range(len(kind.shape))
        return tuple(kind.shape[axis] for axis in order)
    if pa.types.is_fixed_size_list(kind):
        inner = kind.value_type
        if pa.types.is_fixed_size_list(inner):
            below = tensor_shape(inner)
            return None if below is None else (kind.list_size, *below)
        return (kind.list_size,) if is_number(inner) else None
    return None


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The equivalent type in layouts that every Arrow reader supports: no views, no run-end encoding."""
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, plain_type(kind.value_type), kind.ordered)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(_plain_field(kind.value_field))
    if pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(_plain_field(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    return kind


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def fixed_tensors(values: np.ndarray) -> pa.Array:
    """[rows, ...] as a column, without a copy if it is contiguous. Numbers and booleans only."""
    shape = values.shape[1:]
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    size = int(np.prod(shape, dtype=np.int64))
    kind = pa.fixed_shape_tensor(flat.type, shape)
    if size == 0:
        storage = pa.array([[]] * len(values), kind.storage_type)
    else:
        storage = pa.FixedSizeListArray.from_arrays(flat, size)
    return pa.ExtensionArray.from_storage(kind, storage)


def ragged_tensors(values: Sequence[np.ndarray | None]) -> pa.Array:
    """A column of tensors with different shapes."""
    present = [value for value in values if value is not None]
    dtype = np.result_type(*present) if present else np.dtype(np.float32)
    flat = [np.ascontiguousarray(value, dtype).reshape(-1) for value in present]
    data = _lists(flat, dtype, values)
    shapes = _lists([np.asarray(value.shape, np.int32) for value in present], np.dtype(np.int32), values)
    missing = pa.array([value is None for value in values], pa.bool_())
    fields = [pa.field("data", data.type), pa.field("shape", shapes.type)]
    storage = pa.StructArray.from_arrays([data, shapes], fields=fields, mask=missing)
    return pa.ExtensionArray.from_storage(RaggedTensorType(data.type.value_type), storage)


def cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Raises if a value would be lost. Tensors of one shape may become lists or ragged tensors, never the reverse."""
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind)
    if isinstance(kind, RaggedTensorType) and tensor_shape(column.type) is not None:
        dtype = kind.value_type.to_pandas_dtype()
        return ragged_tensors([None if row is None else row.astype(dtype) for row in numpy_of(column)])
    if isinstance(column.type, pa.FixedShapeTensorType):
        if len(column.type.shape) > 1 and tensor_shape(column.type) != tensor_shape(kind):
            raise ValueError("their shapes differ")
        column = column.storage
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, column.cast(kind.storage_type))
    return column.cast(kind)


def _of_numpy(values: np.ndarray, name: str) -> pa.Array:
    if values.ndim == 0:
        raise DataError(f"{_column(name)} is a single value ({values}): expected one for each row")
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if values.ndim == 1:
        return pa.array(values)
    if values.dtype.kind in "biuf":
        return fixed_tensors(values)
    return pa.array(values.tolist())


def _of_objects(values: Sequence[Any] | np.ndarray, name: str, may_differ: bool) -> pa.Array:
    if not any(_is_tensor(value) for value in values):
        objects = values.tolist() if isinstance(values, np.ndarray) else values
        _check_mixture(objects)
        return pa.array(objects)
    tensors = [None if value is None else _as_numpy(value) for value in values]
    present = [tensor for tensor in tensors if tensor is not None]
    ranks = {tensor.ndim for tensor in present}
    if ranks == {0}:
        return pa.array([None if tensor is None else tensor[()] for tensor in tensors])
    if any(tensor.dtype.kind not in "biuf" for tensor in present):
        return pa.array([None if tensor is None else tensor.tolist() for tensor in tensors])
    shapes = {tensor.shape for tensor in present}
    if len(shapes) == 1 and not may_differ and len(present) == len(tensors):
        return fixed_tensors(np.stack(present))
    if ranks == {1}:
        dtype = np.result_type(*present)
        return _lists([np.ascontiguousarray(tensor, dtype) for tensor in present], dtype, tensors)
    return ragged_tensors(tensors)


def _check_mixture(values: Iterable[Any]) -> None:
    """Raises for values of types that Arrow combines although one of them loses its meaning: True in a list of numbers
    would become 1, and the time of a datetime after a date would be dropped."""
    kinds = set(map(type, values)) - {type(None)}
    if dict in kinds:
        fields: dict[str, list[Any]] = {}
        for value in values:
            for key, inner in (value or {}).items():
                fields.setdefault(key, []).append(inner)
        for inner in fields.values():
            _check_mixture(inner)
    elif kinds & {list, tuple}:
        _check_mixture([inner for value in values if value is not None for inner in value])
    elif len(kinds) > 1:
        families = {_family(value) for value in values} - {""}
        if len(families) > 1:
            raise TypeError(f"Arrow would lose values: there are {' and '.join(sorted(families))}")


def _family(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "booleans"
    if isinstance(value, (int, float, np.number)):
        return "numbers"
    if isinstance(value, datetime.datetime):
        return "datetimes" if value.tzinfo is None else "datetimes with a time zone"
    if isinstance(value, datetime.date):
        return "dates"
    return "text" if isinstance(value, str) else "bytes" if isinstance(value, bytes) else ""


def _of_series(values: Any, name: str) -> pa.Array:
    """A pandas column. Vectors become lists: their lengths may differ in the next batch."""
    if values.dtype == object:
        objects = values.to_numpy()
        first = next((value for value in objects if value is not None), None)
        if _is_tensor(first):
            return _of_objects(objects, name, _as_numpy(first).ndim == 1)
        return one_chunk(pa.array(list(objects), from_pandas=True))
    array = one_chunk(pa.array(values, from_pandas=True))
    if pa.types.is_large_string(array.type) and array.nbytes < np.iinfo(np.int32).max:
        return array.cast(pa.string())  # as from every other source: joins need equal types
    return array


def _lists(flat: list[np.ndarray], dtype: np.dtype[Any], rows: Sequence[Any]) -> pa.Array:
    """A list column; `flat` has the values of the rows that are not null."""
    lengths = iter(flat)
    offsets: np.ndarray = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([0 if row is None else len(next(lengths)) for row in rows], out=offsets[1:])
    values = pa.array(np.concatenate(flat) if flat else np.empty(0, dtype))
    mask = pa.array([row is None for row in rows], pa.bool_()) if any(row is None for row in rows) else None
    if offsets[-1] > np.iinfo(np.int32).max:
        return pa.LargeListArray.from_arrays(pa.array(offsets), values, mask=mask)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values, mask=mask)


def _fixed_values(array: pa.Array, name: str) -> np.ndarray:
    shape = tensor_shape(array.type)
    assert shape is not None
    kind, storage = array.type, array
    physical: Sequence[int] = shape
    order: Sequence[int] | None = None
    if isinstance(kind, pa.FixedShapeTensorType):
        physical, order, storage = kind.shape, kind.permutation, array.storage
    if storage.null_count:
        rows = [numpy_of(array.slice(row, 1).drop_null(), name) for row in range(len(array))]
        return objects_of([row[0] if len(row) else None for row in rows])
    values = storage
    while pa.types.is_fixed_size_list(values.type):
        if values.null_count:
            return objects_of(array.to_pylist())
        values = values.flatten()
    result: np.ndarray = values.to_numpy(zero_copy_only=False).reshape(len(array), *physical)
    if order is not None:
        result = result.transpose(0, *(axis + 1 for axis in order))
    return result


def _list_values(array: pa.Array, name: str) -> np.ndarray:
    offsets = array.offsets.to_numpy()
    start, end = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    values = numpy_of(array.values.slice(start, end - start), name)
    bounds = offsets - start
    rows: list[Any] = [values[bounds[row] : bounds[row + 1]] for row in range(len(array))]
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        rows = [row if there else None for row, there in zip(rows, valid, strict=True)]
    return objects_of(rows)


def _ragged_values(array: pa.Array) -> list[np.ndarray | None]:
    storage = array.storage
    data = _list_values(storage.field("data"), "")
    shapes = _list_values(storage.field("shape"), "")
    valid = storage.is_valid().to_numpy(zero_copy_only=False)
    return [values.reshape(shape) if there else None for values, shape, there in zip(data, shapes, valid, strict=True)]


def _row_values(column: pa.Array) -> list[Any]:
    if isinstance(column.type, (pa.FixedShapeTensorType, RaggedTensorType)):
        return list(numpy_of(column))
    values: list[Any] = column.to_pylist()
    return values


def objects_of(values: Sequence[Any] | np.ndarray) -> np.ndarray:
    """One object for each value: numpy would join tensors of one shape."""
    result: np.ndarray = np.empty(len(values), object)
    for index, value in enumerate(values):
        result[index] = value
    return result


def one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):  # text of more than 2 GB
        raise DataError(f"{combined.nbytes} bytes of text in one batch: use smaller batches")
    return combined


def _is_series(values: Any) -> bool:
    return type(values).__module__.partition(".")[0] == "pandas"


def _is_tensor(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return True
    if isinstance(value, (int, float, str, bytes, list, tuple, dict, type(None), np.generic)):
        return False
    return hasattr(value, "__array__") or hasattr(value, "__array_interface__")


def _as_numpy(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))
    if hasattr(value, "detach"):  # a torch tensor, which may be on a device or require a gradient
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
    array: np.ndarray = np.asarray(value)
    return array


def _why(values: Any, error: Exception) -> str:
    """Names the first row that Arrow cannot hold together with the previous ones."""
    if not isinstance(values, (list, tuple)) or not values:
        return f"Arrow cannot hold it: {error}"
    first = next((index for index, value in enumerate(values) if value is not None), 0)
    for index in range(first, len(values)):
        try:
            _of_objects([values[first], values[index]], "", False)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            break
    else:
        return f"Arrow cannot hold it: {error}"
    if index == first:
        return f"row {index} is {_shown(values[index])}, which Arrow cannot hold: {error}"
    return f"row {index} is {_shown(values[index])} and row {first} is {_shown(values[first])}: all rows need one type"


def _column(name: str) -> str:
    return f"column {name!r}" if name else "the values"


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({_kind(value)})"


def _kind(value: Any) -> str:
    return type(value).__name__
