"""Batches of a dataset as arrays that span the devices of all workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Sharding

from trireme._core import count_of
from trireme.data._iterator import Batches

if TYPE_CHECKING:
    from trireme.data._iterator import DataIterator

_UNEVEN = "pass drop_last=True to leave it out, or pad_last=True to fill it by repeating its rows"


def iter_batches(
    shard: DataIterator, sharding: Sharding | Mapping[str, Sharding], *, dtypes: Any = None, **options: Any
) -> Batches:
    """Dicts of global jax.Arrays: each worker provides the rows of its own devices.

    sharding: of the arrays, or a dict by column. It divides the rows among all workers, and may divide other dimensions
        among the devices of a worker.
    dtypes: of the arrays, or a dict by column.
    options: those of DataIterator.iter_batches(). batch_size counts the rows of one worker, global_batch_size those of
        the arrays.
    """
    local = shard.iter_batches(batch_format="numpy", **options)
    rows = _rows_of_batch(local)
    for each in sharding.values() if isinstance(sharding, Mapping) else (sharding,):
        _check_sharding(each, rows, local._options, shard)

    def arrays(batches: Iterator[Any]) -> Iterable[dict[str, jax.Array]]:
        for batch in local._make(batches):
            yield {name: _global(name, values, sharding, dtypes) for name, values in batch.items()}

    return Batches(local._source, local._options, arrays)


def _rows_of_batch(local: Batches) -> int:
    given: int | None = local._options["global_batch_size"]
    return given or int(local._options["batch_size"]) * jax.process_count()


def _check_sharding(sharding: Any, rows: int, options: Mapping[str, Any], shard: DataIterator) -> None:
    """Before anything is read: an array whose rows cannot be divided would end the training at the end of an epoch."""
    if not isinstance(sharding, Sharding):
        raise TypeError(f"iter_batches() expects a jax.sharding.Sharding, got {sharding!r}")
    _check_rows(sharding, rows, f"a batch has {rows} rows: choose another batch size")
    last = shard.count() % rows
    if last and not (options["drop_last"] or options["pad_last"]):
        _check_rows(sharding, last, f"the last batch of an epoch has {count_of(last, 'row')}: {_UNEVEN}")


def _check_rows(sharding: Sharding, rows: int, what: str) -> None:
    try:
        indices = sharding.addressable_devices_indices_map((rows,))
    except ValueError as error:  # jax: not divisible
        raise ValueError(f"iter_batches(): {what} ({error})") from error
    mine = {range(rows)[index[0]] for index in indices.values() if index is not None}
    if sum(map(len, mine)) * jax.process_count() != rows:
        raise ValueError(
            f"iter_batches({sharding}): the devices of this worker hold {sum(map(len, mine))} of {rows} rows, "
            f"and every worker reads {rows // jax.process_count()}: divide the rows among all workers, and other "
            "dimensions only within a worker"
        )


def _global(name: str, values: np.ndarray, sharding: Any, dtypes: Any) -> jax.Array:
    if isinstance(sharding, Mapping):
        if name not in sharding:
            raise KeyError(f"iter_batches(): the dict of shardings has no sharding for column {name!r}: add it")
        sharding = sharding[name]
    dtype = dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes
    array = np.asarray(values)
    if array.dtype.kind not in "biufc" and array.dtype.name != "bfloat16":
        raise TypeError(
            f"column {name!r} has {array.dtype}, which cannot be converted to a JAX array: drop it "
            f"(drop_columns([{name!r}])), or convert it to numbers of one shape (map_batches())"
        )
    if dtype is not None:
        array = array.astype(jax.dtypes.canonicalize_dtype(dtype))
    return jax.make_array_from_process_local_data(sharding, array)
