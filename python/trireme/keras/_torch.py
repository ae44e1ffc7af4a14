"""Keras on torch in a TorchTrainer: fit() averages the gradients of all workers. Keras itself would not."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from trireme._context import TrainContext
from trireme._patches import wrap
from trireme.keras._hooks import separate_models
from trireme.torch._group import gathered
from trireme.torch._loader import PreparedDataLoader

# Whether a fit() of several workers runs, and whether an optimizer of it applies averaged gradients.
_fits = False
_applies = False


def prepare(module: ModuleType, context: TrainContext) -> None:
    """module: keras.src.backend.torch.trainer."""
    from keras.src.optimizers import base_optimizer, loss_scale_optimizer, multi_optimizer

    world = context.get_world_size()
    wrap(module.TorchTrainer, "fit", functools.partial(_together, context))
    wrap(module.TorchTrainer, "make_train_function", _from_equal_weights)
    wrap(module.TorchTrainer, "_get_metrics_result_or_logs", functools.partial(_averaged_logs, world))
    wrap(module.TorchTrainer, "_symbolic_build", _keeping_position)
    wrap(module.TorchEpochIterator, "_get_iterator", _begun_when_read)
    for optimizer in (
        base_optimizer.BaseOptimizer,
        loss_scale_optimizer.LossScaleOptimizer,
        multi_optimizer.MultiOptimizer,
    ):
        wrap(optimizer, "apply", functools.partial(_averaged_gradients, world))


def _together(context: TrainContext, original: Any, self: Any, *arguments: Any, **options: Any) -> Any:
    global _fits
    world = context.get_world_size()
    if world > 1 and not (dist.is_initialized() and dist.get_world_size() == world):
        raise separate_models("Keras on torch without the process group of the run", context, "keep the group")
    before, _fits = _fits, world > 1
    try:
        return original(self, *arguments, **options)
    finally:
        _fits = before


def _from_equal_weights(original: Any, self: Any, *arguments: Any, **options: Any) -> Any:
    """fit() calls it once the model is built."""
    if _fits:
        for variable in [*self.variables, *(self.optimizer.variables if self.optimizer else ())]:
            if isinstance(value := getattr(variable, "value", None), torch.Tensor):
                dist.broadcast(value.detach(), src=0)
    return original(self, *arguments, **options)


def _averaged_gradients(world: int, original: Any, self: Any, grads: Any, *arguments: Any, **options: Any) -> Any:
    global _applies
    if not _fits or _applies:
        return original(self, grads, *arguments, **options)
    _applies = True
    try:
        return original(self, _mean_of_ranks(list(grads), world), *arguments, **options)
    finally:
        _applies = False


def _mean_of_ranks(gradients: list[Any], world: int) -> list[Any]:
    """In one operation per type and device. A gradient that no rank has stays None."""
    groups: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for index, gradient in enumerate(gradients):
        if gradient is not None:
            groups.setdefault((gradient.dtype, gradient.device), []).append(index)
    if any(gradient is None for gradient in gradients):
        _check_same_missing(gradients)
    for indexes in groups.values():
        flat = torch.cat([gradients[index].reshape(-1) for index in indexes])
        dist.all_reduce(flat)
        flat /= world
        parts = flat.split([gradients[index].numel() for index in indexes])
        for index, part in zip(indexes, parts, strict=True):
            gradients[index] = part.view_as(gradients[index])
    return gradients


def _check_same_missing(gradients: list[Any]) -> None:
    mine = [index for index, gradient in enumerate(gradients) if gradient is None]
    everyone = gathered(mine)
    if any(each != mine for each in everyone):
        raise RuntimeError(
            f"Keras on torch: the ranks have no gradient for different variables ({everyone}); use every variable in "
            "every step, or train with trireme.torch.prepare_model() and a loop of your own"
        )


def _averaged_logs(world: int, original: Any, self: Any, logs: Any) -> Any:
    """Of an epoch, so that callbacks such as EarlyStopping decide the same on all ranks."""
    found = original(self, logs)
    if not _fits:
        return found
    everyone = gathered({name: float(value) for name, value in found.items()})
    return {name: sum(each[name] for each in everyone) / world for name in found}


def _keeping_position(original: Any, self: Any, iterator: Any = None, data_batch: Any = None) -> Any:
    """Keras takes a batch to see its shapes."""
    loader = _prepared_loader(iterator)
    state = None if loader is None else loader.state_dict()
    result = original(self, iterator=iterator, data_batch=data_batch)
    if loader is not None and state is not None and loader._begun:
        loader.load_state_dict(state)
    return result


def _begun_when_read(original: Any, self: Any) -> Any:
    """Keras creates iterators that it does not read. Each would be an epoch of a prepared loader."""
    loader = _prepared_loader(self)
    return original(self) if loader is None else _Lazy(loader)


def _prepared_loader(iterator: Any) -> PreparedDataLoader | None:
    loader = getattr(getattr(iterator, "data_adapter", None), "_dataloader", None)
    return loader if isinstance(loader, PreparedDataLoader) else None


class _Lazy:
    def __init__(self, loader: PreparedDataLoader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        yield from self._loader
