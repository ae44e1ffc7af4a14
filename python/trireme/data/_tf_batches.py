"""Batches as TensorFlow tensors, and a tf.data.Dataset of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trireme._consumers import current_loop
from trireme._extras import imported
from trireme._shard_batches import mark_as_shard
from trireme.data._column_ops import require_columns
from trireme.data._formats import Batch, check_dtypes, dtype_of, raw_batches, tensor_arrays
from trireme.data._fragment import DataError
from trireme.data._tensors import RaggedTensorType, is_number, tensor_shape

if TYPE_CHECKING:
    from trireme.data._iterator import DataIterator


def to_tf_batch(batch: Batch, dtypes: Any = None) -> dict[str, Any]:
    """A dict of tensors; lists of different lengths become ragged. dtypes: one tf.dtypes.DType, or a dict by column."""
    tf = import_tensorflow("iter_tf_batches()")
    check_dtypes(dtypes, batch[0].schema)
    wanted = {name: dtype_of(name, dtypes) for name in batch[0].schema.names}
    arrays = tensor_arrays(batch, lambda name: wanted[name] is not None and tf.as_dtype(wanted[name]).is_floating)
    return {name: _tensor(tf, values, name, wanted[name]) for name, values in arrays.items()}


def to_tf(
    iterator: DataIterator,
    feature_columns: str | Sequence[str],
    label_columns: str | Sequence[str],
    *,
    additional_columns: str | Sequence[str] | None = None,
    batch_size: int = 1,
    feature_type_spec: Any = None,
    label_type_spec: Any = None,
    additional_type_spec: Any = None,
    **options: Any,
) -> Any:
    """A tf.data.Dataset of (features, labels[, additional]): a tensor for a name, a dict of tensors for a list.

    *_type_spec: of the tensors, in the same structure; default: from the schema. options: those of iter_batches().
    """
    tf = import_tensorflow("to_tf()")
    schema = iterator.schema()
    batches = raw_batches(iterator, batch_size=batch_size, **options)
    parts = [("feature_columns", feature_columns, feature_type_spec), ("label_columns", label_columns, label_type_spec)]
    if additional_columns is not None:
        parts.append(("additional_columns", additional_columns, additional_type_spec))
    specs = []
    for argument, columns, spec in parts:
        require_columns([columns] if isinstance(columns, str) else columns, schema, argument)
        specs.append(_each(columns, lambda name: _spec(tf, schema.field(name))) if spec is None else spec)

    by_column: dict[str, Any] = {}
    for (argument, columns, _), spec in zip(parts, specs, strict=True):
        if isinstance(columns, str) == isinstance(spec, dict) or (isinstance(spec, dict) and set(spec) != set(columns)):
            raise ValueError(
                f"{argument}={columns!r} and the type spec {spec!r}: a list of columns needs a dict of specs"
            )
        by_column.update({columns: spec} if isinstance(columns, str) else spec)

    def generate() -> Iterator[tuple[Any, ...]]:
        loop = current_loop()
        for record_batch, tensors in batches if loop is None else batches.reporting(loop):
            batch = (record_batch.select(list(by_column)), tensors)
            arrays = tensor_arrays(batch, lambda name: by_column[name].dtype.is_floating)
            yield tuple(_selected(tf, arrays, part[1], spec) for part, spec in zip(parts, specs, strict=True))

    dataset = tf.data.Dataset.from_generator(generate, output_signature=tuple(specs))
    settings = tf.data.Options()
    # The generator returns the rows of this worker; TensorFlow must not shard them again.
    settings.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return mark_as_shard(dataset.with_options(settings))


def import_tensorflow(what: str) -> Any:
    return imported("tensorflow", f"{what} needs TensorFlow: pip install tensorflow")


def _selected(tf: Any, arrays: dict[str, np.ndarray], columns: str | Sequence[str], spec: Any) -> Any:
    return _each(columns, lambda name: _of_spec(tf, arrays[name], name, spec))


def _each(columns: str | Sequence[str], function: Callable[[str], Any]) -> Any:
    return function(columns) if isinstance(columns, str) else {name: function(name) for name in columns}


def _spec(tf: Any, field: pa.Field) -> Any:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    shape = tensor_shape(kind)
    if shape is not None or is_number(kind):
        return tf.TensorSpec((None, *(shape or ())), _dtype(tf, kind), field.name)
    if _is_text(kind):
        return tf.TensorSpec((None,), tf.string, field.name)
    if _is_list(kind) and (is_number(kind.value_type) or _is_text(kind.value_type)):
        dtype = tf.string if _is_text(kind.value_type) else _dtype(tf, kind.value_type)
        return tf.RaggedTensorSpec((None, None), dtype, ragged_rank=1)
    raise _no_tensor(field.name, field.type)


def _dtype(tf: Any, kind: pa.DataType) -> Any:
    while not is_number(kind):
        kind = kind.value_type
    return tf.as_dtype(kind.to_pandas_dtype())


def _of_spec(tf: Any, values: np.ndarray, name: str, spec: Any) -> Any:
    if isinstance(spec, dict):
        spec = spec[name]
    tensor = _tensor(tf, values, name, spec.dtype)
    if isinstance(spec, tf.RaggedTensorSpec) and not isinstance(tensor, tf.RaggedTensor):
        return tf.RaggedTensor.from_tensor(tensor)
    return tensor


def _tensor(tf: Any, values: np.ndarray, name: str, dtype: Any) -> Any:
    try:
        if values.dtype == object and len(values) and isinstance(values[0], np.ndarray):
            if any(value is None or value.ndim != 1 for value in values):
                raise ValueError("its rows are not all vectors")
            flat = tf.constant(np.concatenate(values).tolist() if values[0].dtype == object else np.concatenate(values))
            tensor = tf.RaggedTensor.from_row_lengths(flat, [len(value) for value in values])
        elif values.dtype == object and any(value is None for value in values):
            raise ValueError("it has nulls")
        elif values.dtype == object or values.dtype.kind in "US":
            tensor = tf.constant(values.tolist())
        else:
            tensor = tf.convert_to_tensor(values)
        return tensor if dtype is None or tensor.dtype == dtype else tf.cast(tensor, dtype)
    except (ValueError, TypeError, tf.errors.OpError) as error:
        raise DataError(
            f"column {name!r} cannot be converted to a TensorFlow tensor ({error}): drop it (drop_columns([{name!r}])) "
            "or convert it to numbers of one shape (map_batches(), trireme.data.preprocessors)"
        ) from error


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _no_tensor(name: str, kind: pa.DataType) -> DataError:
    ragged = ", whose shapes differ" if isinstance(kind, RaggedTensorType) else ""
    return DataError(
        f"column {name!r} is {kind}{ragged}: pass its type spec, drop it (drop_columns([{name!r}])), or convert it to "
        "numbers of one shape (map_batches(), trireme.data.preprocessors)"
    )
