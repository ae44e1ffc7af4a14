"""Batches as JAX arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from trireme._extras import imported
from trireme.data._formats import Batch, check_collate, check_dtypes, collated, dtype_of, tensor_arrays
from trireme.data._fragment import DataError


def to_jax_batch(
    batch: Batch, dtypes: Any = None, paddings: Any = None, batch_size: int | None = None
) -> dict[str, Any]:
    """A dict of arrays on JAX's device. dtypes, paddings: one for all columns, or a dict by column.

    paddings: values that fill a batch that is shorter than batch_size.
    """
    jnp = import_jax()
    check_dtypes(dtypes, batch[0].schema)

    def wants_floats(name: str) -> bool:
        dtype = dtype_of(name, dtypes)
        return dtype is not None and bool(jnp.issubdtype(dtype, jnp.floating))

    arrays = tensor_arrays(batch, wants_floats)
    return {name: _array(array, name, dtypes, paddings, batch_size) for name, array in arrays.items()}


def jax_batches(
    batches: Iterable[Batch],
    *,
    batch_size: int | None,
    dtypes: Any = None,
    collate_fn: Callable[[Any], Any] | None = None,
    paddings: Any = None,
) -> Iterator[Any]:
    """One batch for each batch. The result of collate_fn, an array or a dict of arrays, is also padded and moved."""
    import_jax()
    check_collate(collate_fn, dtypes)
    if collate_fn is None:
        return (to_jax_batch(batch, dtypes, paddings, batch_size) for batch in batches)

    def moved(made: Any) -> Any:
        if isinstance(made, dict):
            return {name: _array(array, name, None, paddings, batch_size) for name, array in made.items()}
        return _array(made, "", None, paddings, batch_size)

    return (moved(collated(batch, collate_fn)) for batch in batches)


def import_jax(what: str = "iter_jax_batches()") -> Any:
    return imported("jax.numpy", f"{what} needs JAX: pip install jax")


def _array(values: Any, name: str, dtypes: Any, paddings: Any, batch_size: int | None) -> Any:
    array: np.ndarray = np.asarray(values)
    if array.dtype == object or array.dtype.kind not in "biufc":
        raise DataError(
            f"column {name!r} has {_kind(array)}, which cannot be converted to a JAX array: drop it "
            f"(drop_columns([{name!r}])), convert it to numbers of one shape (map_batches(), "
            "trireme.data.preprocessors), or pass a collate_fn"
        )
    padding = dtype_of(name, paddings)
    missing = 0 if batch_size is None or padding is None else batch_size - len(array)
    if missing > 0:
        filling: np.ndarray = np.full((missing, *array.shape[1:]), padding, array.dtype)
        array = np.concatenate([array, filling])
    return import_jax().asarray(array, dtype=dtype_of(name, dtypes))


def _kind(array: np.ndarray) -> str:
    if array.dtype == object and len(array):
        return f"{type(array[0]).__name__} of different shapes" if isinstance(array[0], np.ndarray) else "objects"
    return str(array.dtype)
