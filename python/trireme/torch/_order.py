"""The order of samples in an epoch: the same on every rank and after a restart."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import RandomSampler, SequentialSampler


class Order:
    """The order that a sampler (of samples or batches) produces in an epoch.

    size: the number of items; None if the sampler does not know it.
    """

    def __init__(self, sampler: Any, seed: int) -> None:
        self.seed = seed
        self.size = len(sampler) if isinstance(sampler, Sized) else None
        self.sampler = sampler
        self.shuffles = type(sampler) is not SequentialSampler
        self._of_epoch = self._choose(sampler)
        self._told = [_epoch_of(part) for part in parts_of(sampler)]

    def of(self, epoch: int) -> Any:
        """A sequence or tensor; an iterator if the sampler does not know its size."""
        return self._of_epoch(epoch)

    def asked_epoch(self) -> int | None:
        """The epoch that the user has set on their own sampler since the last iteration, or None."""
        for part, told in zip(parts_of(self.sampler), self._told, strict=True):
            if (now := _epoch_of(part)) != told:
                return now
        return None

    def _choose(self, sampler: Any) -> Callable[[int], Any]:
        # Exactly these types: subclasses may behave differently.
        if type(sampler) is SequentialSampler:
            return lambda epoch: range(len(sampler))
        if type(sampler) is RandomSampler and not sampler.replacement and len(sampler) == len(sampler.data_source):
            return self._shuffled
        return self._drawn

    def _shuffled(self, epoch: int) -> torch.Tensor:
        """Shuffles like DistributedSampler."""
        return torch.randperm(self.size, generator=torch.Generator().manual_seed(self.seed + epoch))

    def _drawn(self, epoch: int) -> Any:
        """Runs the sampler itself, with random numbers that depend only on the epoch."""
        for part in parts_of(self.sampler):
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)
            if isinstance(generator := getattr(part, "generator", None), torch.Generator):
                generator.manual_seed(self.seed + epoch)
        self._told = [_epoch_of(part) for part in parts_of(self.sampler)]
        if self.size is None:
            return iter(self.sampler)
        with _random_numbers(self.seed + epoch):
            return list(self.sampler)


def _epoch_of(part: Any) -> int | None:
    epoch = getattr(part, "epoch", None)
    return epoch if hasattr(part, "set_epoch") and isinstance(epoch, int) else None


def is_distributed(sampler: Any) -> bool:
    """Whether it already splits the data between workers."""
    return hasattr(sampler, "num_replicas") and hasattr(sampler, "rank")


def parts_of(sampler: Any) -> list[Any]:
    """The sampler and, for a batch sampler, the sampler of its samples."""
    return [part for part in (sampler, getattr(sampler, "sampler", None)) if part is not None]


@contextmanager
def _random_numbers(seed: int) -> Iterator[None]:
    """Seeds the generators of torch, Python and numpy, and restores their states afterwards."""
    numpy = sys.modules.get("numpy")
    python_state, numpy_state = random.getstate(), numpy.random.get_state() if numpy else None
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            random.seed(seed)
            if numpy:
                numpy.random.seed(seed % 2**32)
            yield
    finally:
        random.setstate(python_state)
        if numpy:
            numpy.random.set_state(numpy_state)
