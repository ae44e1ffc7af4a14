"""Checks that the workers train one model: otherwise each would train its own, without an error."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from tensorflow.python.distribute import collective_all_reduce_strategy as collective
from tensorflow.python.distribute import distribute_lib, mirrored_strategy

from trireme._context import TrainContext
from trireme._core import count_of
from trireme._patches import wrap
from trireme._shard_batches import is_of_shard

_FIX = (
    "create tf.distribute.MultiWorkerMirroredStrategy() in the training function, leave TF_CONFIG as Trireme sets it, "
    "and build the model in strategy.scope()"
)


class Group:
    """The multi-worker strategies that this attempt creates."""

    def __init__(self, context: TrainContext, has_servers: bool) -> None:
        self._world = context.get_world_size()
        self._rank = context.get_world_rank()
        self._has_servers = has_servers
        self._used = False

    def watch(self) -> None:
        if self._has_servers:
            return
        checked = functools.partial(_checked_after, self._check_multi_worker)
        wrap(collective.CollectiveAllReduceExtended, "_initialize_strategy", checked)
        wrap(distribute_lib.StrategyBase, "experimental_distribute_dataset", _keeping_batches_of_shards)
        wrap(mirrored_strategy.MirroredStrategy, "__init__", functools.partial(_checked_after, self._check_mirrored))

    def warn_if_never_used(self) -> None:
        if self._world > 1 and not self._used and not self._has_servers and self._rank == 0:
            warnings.warn(
                f"the training function did not create a strategy for several workers, so each of the {self._world} "
                f"workers worked alone; to train one model, {_FIX}",
                stacklevel=2,
            )

    def _check_multi_worker(self, extended: Any) -> None:
        found = int(extended._num_workers)
        if found != self._world:
            raise RuntimeError(
                f"TensorFlow has found {count_of(found, 'worker')} and the run has "
                f"{count_of(self._world, 'worker')}, so every worker would train a model of its own; {_FIX}"
            )
        self._used = True

    def _check_mirrored(self, strategy: Any) -> None:
        if self._world > 1:
            raise RuntimeError(
                f"tf.distribute.MirroredStrategy spans the devices of one worker, and the run has "
                f"{count_of(self._world, 'worker')}, so every worker would train a model of its own; {_FIX}"
            )


def _checked_after(check: Callable[[Any], None], original: Any, self: Any, *arguments: Any, **options: Any) -> Any:
    result = original(self, *arguments, **options)
    check(self)
    return result


def _keeping_batches_of_shards(original: Any, self: Any, dataset: Any, options: Any = None) -> Any:
    """TensorFlow takes a batch for one of all workers, and divides it among them, even if each has other rows."""
    if self.extended._in_multi_worker_mode() and is_of_shard(dataset):
        return self.distribute_datasets_from_function(lambda _: dataset, options)
    return original(self, dataset, options)
