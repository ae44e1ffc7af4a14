"""The loader of `deepspeed.initialize(training_data=...)`: its position is part of every checkpoint."""

from __future__ import annotations

from collections.abc import Sized
from types import ModuleType
from typing import Any

from torch.utils.data import DataLoader

from trireme._context import TrainContext
from trireme._patches import wrap

_PREPARED = "_trireme_prepared"


def prepare_training_data(context: TrainContext, module: ModuleType) -> None:
    """DeepSpeed's loader has a DistributedSampler, which cannot start in the middle of an epoch. module:
    deepspeed.runtime.dataloader.

    Samplers of the script, curriculum learning and evaluation stay as they are, and so do workers that share data.
    """

    def initialize(original: Any, self: Any, dataset: Any, *arguments: Any, **options: Any) -> None:
        original(self, dataset, *arguments, **options)
        trains = self.tput_timer is not None and not self.curriculum_learning_enabled
        alone = options.get("data_parallel_world_size") == context.get_world_size()
        if trains and alone and options.get("data_sampler") is None and isinstance(dataset, Sized):
            _prepare(self)

    def create(original: Any, self: Any) -> Any:
        prepared = vars(self).get(_PREPARED)
        if prepared is None:
            return original(self)
        self.dataloader, self.data = prepared, iter(prepared)
        return prepared

    wrap(module.DeepSpeedDataLoader, "_create_dataloader", create)
    wrap(module.DeepSpeedDataLoader, "__init__", initialize)
    module.DeepSpeedDataLoader.epoch = property(_epoch)


def _prepare(loader: Any) -> None:
    from trireme.torch._loader import prepare_data_loader

    plain = DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        shuffle=True,
        pin_memory=loader.pin_memory,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_local_io_workers,
        drop_last=loader.dataloader_drop_last,
    )
    prepared = prepare_data_loader(plain, move_to_device=False)
    setattr(loader, _PREPARED, prepared)
    loader.data_sampler, loader.len = prepared.sampler, len(prepared)


def _epoch(loader: Any) -> int:
    """The current epoch, or the epoch of the next iteration."""
    prepared = vars(loader).get(_PREPARED)
    if prepared is None:
        raise AttributeError("this loader has no epoch: it has a sampler of its own, or is not for training")
    epoch: int = prepared.epoch
    return epoch
