"""A rank's part of an epoch's order, from any place on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import Sampler

from trireme.torch._order import Order


class Shard(Sampler[Any]):  # type: ignore[misc]
    """Every `count`-th sample (or batch) of the order, the same number for each rank.

    What all ranks have had up to a place is the order up to there, so that another number of ranks can go on from it.
    The end is filled up from the start of the order, or cut off where `drop_last`.
    """

    def __init__(self, order: Order, rank: int, count: int, drop_last: bool) -> None:
        self.order = order
        self.rank = rank
        self.count = count
        self._drop_last = drop_last
        self._epoch = 0
        self._done = 0

    def start_at(self, epoch: int, done: int) -> None:
        """Where the next iteration begins; `done` counts what all ranks together have had of that epoch."""
        self._epoch, self._done = epoch, done

    def __len__(self) -> int:
        """Of a whole epoch."""
        if self.order.size is None:
            raise TypeError(f"{type(self.order).__name__} of unknown length: its sampler has no len()")
        return self._share_of(self.order.size)

    def has_more(self, done: int, batch: int) -> bool:
        """Whether each rank has another batch of that size after this place; a smaller one, where none is dropped."""
        if self.order.size is None:
            return True
        return self._share_of(max(self.order.size - done, 0)) >= (batch if self._drop_last else 1)

    def __iter__(self) -> Iterator[Any]:
        order = self.order.of(self._epoch)
        if self.order.size is None:
            return self._streamed(islice(order, self._done, None))
        total = len(order)
        share = self._share_of(max(total - self._done, 0))
        mine = order[self._done + self.rank :: self.count][:share]
        values = mine.tolist() if isinstance(mine, torch.Tensor) else list(mine)
        if len(values) < share:  # at most one is missing
            values.append(_item(order, (self._done + self.rank + (share - 1) * self.count) % total))
        return iter(values)

    def _share_of(self, rest: int) -> int:
        return rest // self.count if self._drop_last else -(-rest // self.count)

    def _streamed(self, order: Iterator[Any]) -> Iterator[Any]:
        """Of an order without an end, or one that is not known: rounds in which every rank gets one."""
        while len(round_ := list(islice(order, self.count))) == self.count:
            yield round_[self.rank]


def _item(order: Any, index: int) -> Any:
    return order[index].item() if isinstance(order, torch.Tensor) else order[index]
