"""A rank's part of an epoch's order, starting at any position."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch

from trireme.torch._epochs import EpochSampler
from trireme.torch._order import Order, is_distributed, parts_of


class RankSampler(EpochSampler):
    """Every `count`-th sample (or batch) of the order, the same number for each rank.

    All ranks together consume the order from front to back, so that another number of ranks can resume at any position.
    The end is padded from the start of the order, or dropped if `drop_last`. Other attributes are those of the user's
    sampler.
    """

    def __init__(self, order: Order, dataset: Any, rank: int, count: int, drop_last: bool) -> None:
        # A distributed sampler already has a rank and a count; this sampler then uses all of its samples.
        shown = next((part for part in parts_of(order.sampler) if is_distributed(part)), None)
        super().__init__(
            dataset, rank if shown is None else shown.rank, count if shown is None else shown.num_replicas, drop_last
        )
        self.order = order
        self._rank = rank
        self._count = count
        self.shuffle = order.shuffles
        self._done = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "order" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.order.sampler, name)

    @property
    def seed(self) -> int:
        return self.order.seed

    @property
    def num_samples(self) -> int:
        return len(self)

    @property
    def total_size(self) -> int:
        return len(self) * self.num_replicas

    def take_asked(self) -> int | None:
        asked = super().take_asked()
        return asked if asked is not None else self.order.asked_epoch()

    def start_at(self, epoch: int, done: int) -> None:
        """Sets the position of the next iteration; `done` counts the items of that epoch consumed by all ranks."""
        self.epoch, self._done = epoch, done

    def __len__(self) -> int:
        """The length of a full epoch."""
        if self.order.size is None:
            raise TypeError(f"{type(self.order).__name__} of unknown length: its sampler has no len()")
        return self._share_of(self.order.size)

    def has_more(self, done: int, batch: int) -> bool:
        """Whether each rank has another batch of that size after this position, or a smaller one unless `drop_last`."""
        if self.order.size is None:
            return True
        return self._share_of(max(self.order.size - done, 0)) >= (batch if self.drop_last else 1)

    def __iter__(self) -> Iterator[Any]:
        order = self.order.of(self.epoch)
        if self.order.size is None:
            return self._streamed(islice(order, self._done, None))
        total = len(order)
        share = self._share_of(max(total - self._done, 0))
        mine = order[self._done + self._rank :: self._count][:share]
        values = mine.tolist() if isinstance(mine, torch.Tensor) else list(mine)
        if len(values) < share:  # at most one is missing
            values.append(_item(order, (self._done + self._rank + (share - 1) * self._count) % total))
        return iter(values)

    def _share_of(self, rest: int) -> int:
        return rest // self._count if self.drop_last else -(-rest // self._count)

    def _streamed(self, order: Iterator[Any]) -> Iterator[Any]:
        """For an order of unknown or infinite length: rounds in which every rank gets one item."""
        while len(round_ := list(islice(order, self._count))) == self._count:
            yield round_[self._rank]


def _item(order: Any, index: int) -> Any:
    return order[index].item() if isinstance(order, torch.Tensor) else order[index]
