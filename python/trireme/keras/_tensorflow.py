"""Keras on TensorFlow in a worker: its fit() under MultiWorkerMirroredStrategy, and the position in a dataset shard."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from trireme._consumers import ReportingLoop, current_loop, reporting_loop
from trireme._context import TrainContext
from trireme._patches import wrap
from trireme._shard_batches import has_batches_of_shard
from trireme.keras._hooks import separate_models

_FIX = (
    "create and compile it in the scope of tf.distribute.MultiWorkerMirroredStrategy(), which you create in the "
    "training function"
)


def prepare(module: ModuleType, context: TrainContext) -> None:
    """module: keras.src.backend.tensorflow.trainer."""
    for bug in affected(module):
        _WORKAROUNDS[bug](module)
    _prepare_trainer(module.TensorFlowTrainer, context)
    wrap(module.TFEpochIterator, "_enumerate_iterator", _ending_in_time)


def prepare_legacy(module: ModuleType, context: TrainContext) -> None:
    """module: tf_keras.src.engine.training."""
    _prepare_trainer(module.Model, context)
    wrap(module.data_adapter.DataHandler, "steps", _ending_in_time_in_tf_keras)


def _prepare_trainer(trainer: Any, context: TrainContext) -> None:
    """trainer: the class with fit()."""

    def fit(original: Any, self: Any, *arguments: Any, **options: Any) -> Any:
        if context.get_world_size() > 1 and not _spans_workers(self.distribute_strategy):
            raise separate_models("a Keras model without a strategy for several workers", context, _FIX)
        return _reporting(original, self, *arguments, **options)

    wrap(trainer, "fit", fit)
    wrap(trainer, "evaluate", _reporting)
    for kind in ("train", "test"):
        wrap(trainer, f"make_{kind}_function", functools.partial(_make_function, f"{kind}_function"))


def _reporting(original: Any, self: Any, *arguments: Any, **options: Any) -> Any:
    with reporting_loop(ReportingLoop()):
        return original(self, *arguments, **options)


def _spans_workers(strategy: Any) -> bool:
    extended = strategy.extended
    return bool(extended._in_multi_worker_mode()) or "ParameterServer" in type(strategy).__name__


def _make_function(name: str, original: Any, self: Any, *arguments: Any, **options: Any) -> Any:
    """name: of the attribute with the function that runs steps."""
    made = original(self, *arguments, **options)
    function = getattr(self, name)
    if not hasattr(function, "_trireme_reports"):

        @functools.wraps(function)
        def run_steps(iterator: Any) -> Any:
            logs = function(iterator)
            if loop := current_loop():
                loop.used(_steps_per_execution(self) * _local_replicas(self.distribute_strategy))
            return logs

        run_steps._trireme_reports = True  # type: ignore[attr-defined]
        setattr(self, name, run_steps)
    return made if made is None else getattr(self, name)


def _local_replicas(strategy: Any) -> int:
    """How many batches of a shard one step of this worker uses."""
    extended = strategy.extended
    return len(extended.worker_devices) if extended._in_multi_worker_mode() else 1


def _steps_per_execution(model: Any) -> int:
    steps = model.steps_per_execution
    return int(steps.numpy() if hasattr(steps, "numpy") else steps)  # tf_keras: a variable


# Keras recognizes the end of a dataset of unknown length when a step fails, which already counts as an iteration of the
# optimizer, and takes the steps of the first epoch for those of all: after a restart, this is the rest of one.


def _ending_in_time(original: Any, self: Any) -> Iterator[tuple[int, int, Any]]:
    loop, size = current_loop(), self.steps_per_execution
    if loop is None or self.steps_per_epoch or not has_batches_of_shard(self.data_adapter.get_tf_dataset()):
        yield from original(self)
        return
    batches = iter(self._get_iterator())
    for step in _steps(loop, size, self._distribute_strategy):
        yield step, step + size - 1, batches


def _ending_in_time_in_tf_keras(original: Any, self: Any) -> Iterator[int]:
    loop, size = current_loop(), int(self._steps_per_execution.numpy())
    adapter = self._adapter
    of_shard = hasattr(adapter, "get_dataset") and has_batches_of_shard(adapter.get_dataset())
    if loop is None or self._inferred_steps or not of_shard:
        yield from original(self)
        return
    self._step_increment = size - 1
    for step in _steps(loop, size, self._model.distribute_strategy):
        self._current_step = step
        yield step


def _steps(loop: ReportingLoop, size: int, strategy: Any) -> Iterator[int]:
    """size: of an execution. The number of batches in an epoch is known once its first batch has been delivered."""
    loop.steps = None
    replicas, step = _local_replicas(strategy), 0
    while loop.steps is None or step * replicas < loop.steps:
        yield step
        step += size


# Errors of Keras 3 under MultiWorkerMirroredStrategy.


def affected(module: ModuleType) -> list[str]:
    """The names of those that this Keras has, by its source: versions with the fix are left alone."""
    build = inspect.getsource(inspect.unwrap(module.TensorFlowTrainer._maybe_symbolic_build))
    reduce = inspect.getsource(inspect.unwrap(module.reduce_per_replica))
    found = ["symbolic build"] if "next(it)" in build else []
    return [*found, *(["mean of scalars"] if 'strategy.reduce("MEAN", v, axis=0)' in reduce else [])]


def _build_from_specs(module: ModuleType) -> None:
    """Keras takes a batch to see its shapes, which fails under the strategy and loses the batch of a shard."""

    def build(original: Any, self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        if self._distribute_strategy is None or iterator is None:
            original(self, iterator=iterator, data_batch=data_batch)
            return
        specs = module.tree.map_structure(_local_spec, iterator._distributed_dataset.element_spec)
        with self.distribute_strategy.scope():
            self._symbolic_build(data_batch=specs)

    wrap(module.TensorFlowTrainer, "_maybe_symbolic_build", build)


def _local_spec(spec: Any) -> Any:
    parts = getattr(spec, "_value_specs", None)  # of the replicas in this worker
    return parts[0] if parts else spec


def _reduce_scalars(module: ModuleType) -> None:
    """Keras asks for the mean over the first axis of every replica's scalar."""

    def reduce_per_replica(original: Any, values: Any, strategy: Any, reduction: str) -> Any:
        if reduction in ("auto", "mean", "sum") and module._collective_all_reduce_multi_worker(strategy):
            how = "SUM" if reduction == "sum" else "MEAN"
            return module.tree.map_structure(lambda value: strategy.reduce(how, value, axis=None), values)
        return original(values, strategy, reduction)

    wrap(module, "reduce_per_replica", reduce_per_replica)


_WORKAROUNDS = {"symbolic build": _build_from_specs, "mean of scalars": _reduce_scalars}
