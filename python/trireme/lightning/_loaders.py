"""Loaders of training: split by Trireme instead of Lightning, so that their position is part of every checkpoint."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from trireme._shard_batches import are_shard_batches
from trireme.torch._loader import PreparedDataLoader, prepare_data_loader
from trireme.torch._order import is_distributed, parts_of

_TAKEN = "_trireme_prepares"


def take_over_training_loaders(trainer: Any) -> None:
    """Lightning's DistributedSampler counts the samples of one rank and cannot start in the middle of an epoch.

    Loaders of an IterableDataset or with a distributed sampler yield what they would yield, and have a position too.
    Other loaders that Lightning would not split (`use_distributed_sampler=False`), and those of validation, tests and
    predictions, stay as they are.
    """
    connector = trainer._data_connector
    if getattr(connector, _TAKEN, False):
        return
    original = connector._prepare_dataloader

    def prepare(dataloader: Any, shuffle: bool, mode: Any) -> Any:
        if mode == "train":
            if are_shard_batches(dataloader):
                return dataloader.for_consumer_ahead(_fetched_ahead(dataloader))
            if isinstance(dataloader, DataLoader) and not isinstance(dataloader, PreparedDataLoader):
                made = with_position(dataloader, connector._requires_distributed_sampler(dataloader))
                if made is not None:
                    made._unused = _fetched_ahead(made)
                    # After a restart, Lightning creates the iterator of an epoch before it begins the epoch.
                    made._draws = False
                    return made
        return original(dataloader, shuffle=shuffle, mode=mode)

    connector._prepare_dataloader = prepare
    setattr(connector, _TAKEN, True)


def with_position(loader: DataLoader, splits: bool) -> PreparedDataLoader | None:
    """The prepared loader. splits: whether Lightning would divide it. None: it would not, and the loader has samples in
    an order that each worker chooses by itself."""
    if splits or isinstance(loader.dataset, IterableDataset) or _is_distributed(loader):
        return prepare_data_loader(loader, add_dist_sampler=splits, move_to_device=False)
    return None


def _fetched_ahead(loader: Any) -> int:
    """Lightning fetches the next batch first if a loader has no length."""
    try:
        len(loader)
    except (TypeError, NotImplementedError):
        return 1
    return 0


def _is_distributed(loader: DataLoader) -> bool:
    return any(is_distributed(sampler) for sampler in [loader.sampler, *parts_of(loader.batch_sampler)])
