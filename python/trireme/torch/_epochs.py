"""Samplers that scripts may call as they call torch's own: `loader.sampler.set_epoch(epoch)`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

from torch.utils.data import DistributedSampler


class EpochSampler(DistributedSampler[Any]):  # type: ignore[misc]
    """A DistributedSampler to whoever looks at it. Its loader counts the epochs by itself; set_epoch() overrules that.

    It has no use for the parent's constructor, which counts the samples of a dataset in its own way.
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
        """The next iteration is one of this epoch: the rest of it where the loader stands in it, else all of it."""
        if isinstance(epoch, bool) or not isinstance(epoch, int):
            raise TypeError(f"set_epoch({epoch!r}): expected an integer")
        self.epoch = self._asked = epoch

    def take_asked(self) -> int | None:
        """The epoch that was set since the last iteration; None: nobody has."""
        asked, self._asked = self._asked, None
        return asked


class StreamSampler(EpochSampler):
    """Of a dataset that is iterated: there is nothing to choose from."""

    def __len__(self) -> int:
        raise TypeError("the sampler of an IterableDataset has no len(): only the dataset knows how much it gives")

    def __iter__(self) -> Iterator[Any]:
        return repeat(None)
