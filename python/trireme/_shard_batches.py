"""Recognizes batches of a dataset's shard among the loaders that users pass to a framework."""

from __future__ import annotations

import sys
from typing import Any


def are_shard_batches(loader: Any) -> bool:
    """Whether it comes from iter_torch_batches() or similar. Does not import trireme.data, which needs pyarrow."""
    module = sys.modules.get("trireme.data._iterator")
    return module is not None and isinstance(loader, module.Batches)


# A tf.data.Dataset with the batches of a shard, and those that are derived from it.

_MARK = "_trireme_shard"
_SAME_BATCHES = ("_MapDataset", "_ParallelMapDataset", "_PrefetchDataset", "_OptionsDataset")


def mark_as_shard(dataset: Any) -> Any:
    setattr(dataset, _MARK, True)
    return dataset


def is_of_shard(dataset: Any) -> bool:
    """Whether it has rows of this worker only."""
    return hasattr(dataset, _MARK) or any(map(is_of_shard, _inputs(dataset)))


def has_batches_of_shard(dataset: Any) -> bool:
    """Whether each element is made of one batch."""
    while not hasattr(dataset, _MARK):
        inputs = _inputs(dataset)
        if type(dataset).__name__ not in _SAME_BATCHES or len(inputs) != 1:
            return False
        (dataset,) = inputs
    return True


def _inputs(dataset: Any) -> list[Any]:
    return list(dataset._inputs()) if hasattr(dataset, "_inputs") else []
