"""Loaders of training: split by Trireme instead of Lightning, so that their position is part of every checkpoint."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from trireme._shard_batches import are_shard_batches
from trireme.torch._loader import PreparedDataLoader, prepare_data_loader

_TAKEN = "_trireme_prepares"


def take_over_training_loaders(trainer: Any) -> None:
    """Lightning's DistributedSampler counts the samples of one rank and cannot start in the middle of an epoch.

    Loaders that Lightning would not split (`use_distributed_sampler=False`, a distributed sampler, an IterableDataset)
    and those of validation, tests and predictions stay as they are.
    """
    connector = trainer._data_connector
    if getattr(connector, _TAKEN, False):
        return
    original = connector._prepare_dataloader

    def prepare(dataloader: Any, shuffle: bool, mode: Any) -> Any:
        if mode != "train":
            return original(dataloader, shuffle=shuffle, mode=mode)
        if isinstance(dataloader, DataLoader) and not isinstance(dataloader, PreparedDataLoader):
            if connector._requires_distributed_sampler(dataloader):
                return prepare_data_loader(dataloader, move_to_device=False)
        elif are_shard_batches(dataloader):
            return dataloader.for_consumer_ahead(1)  # Lightning fetches the next batch first if a loader has no length
        return original(dataloader, shuffle=shuffle, mode=mode)

    connector._prepare_dataloader = prepare
    setattr(connector, _TAKEN, True)
