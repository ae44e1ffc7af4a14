"""Ends streams of unknown length at the same step on all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist


class EvenSteps:
    """Ends when the first rank has no more batches: a rank with one more batch would wait forever for the gradients of
    the others.

    Every rank must iterate. The exchange for a batch overlaps with the processing of the previous one.
    """

    def __init__(self) -> None:
        # A separate CPU group, so that its exchanges do not mix with those of the training.
        self._group = dist.new_group(backend="gloo")

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        batch, all_have, answer = self._ask(batches)
        while answer.wait() and all_have.item():
            now = batch
            batch, all_have, answer = self._ask(batches)
            yield now

    def _ask(self, batches: Iterator[Any]) -> tuple[Any, torch.Tensor, Any]:
        batch = next(batches, _END)
        all_have = torch.tensor(0 if batch is _END else 1, dtype=torch.int32)
        return batch, all_have, dist.all_reduce(all_have, dist.ReduceOp.MIN, group=self._group, async_op=True)


_END = object()
