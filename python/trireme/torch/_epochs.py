"""Samplers with the interface of torch's DistributedSampler: `loader.sampler.set_epoch(epoch)`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

from torch.utils.data import DistributedSampler


class EpochSampler(DistributedSampler[Any]):  # type: ignore[misc]
    """A DistributedSampler for isinstance(). Its loader counts the epochs; set_epoch() overrides the count.

    It does not call the parent's constructor, which counts the samples of the dataset differently.
    """

    def __init__(self, dataset: Any, rank: int, num_replicas: int, drop_last: bool) -> None:
        self.dataset = dataset
        self.rank = rank
        self.num_replicas = num_replicas
        self.drop_last = drop_last
        self.shuffle = False
        self.epoch = 0
        self._asked: int | None = None

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration: the rest of it if the loader is in this epoch, otherwise all of it."""
        if isinstance(epoch, bool) or not isinstance(epoch, int):
            raise TypeError(f"set_epoch({epoch!r}): expected an integer")
        self.epoch = self._asked = epoch

    def take_asked(self) -> int | None:
        """The epoch that was set since the last iteration, or None."""
        asked, self._asked = self._asked, None
        return asked


class StreamSampler(EpochSampler):
    """The sampler of an IterableDataset, which has no samples to choose from."""

    def __len__(self) -> int:
        raise TypeError("the sampler of an IterableDataset has no len(): the number of samples is unknown")

    def __iter__(self) -> Iterator[Any]:
        return repeat(None)
