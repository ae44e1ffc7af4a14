"""Evaluation of the HF Trainer over batches of a shard, of which some workers have more rows, or more batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from accelerate.utils import find_batch_size, pad_across_processes, recursively_apply
from torch.utils.data import DataLoader, IterableDataset

from trireme.torch._group import gathered


class EvenEvaluation(IterableDataset):  # type: ignore[misc]
    """The same number of batches on all workers, which the HF Trainer's gathers need: a worker that has no more rows
    repeats its last batch, and gather() leaves it out."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches
        self._rows: list[int] = []  # of the current batch, by rank

    def __iter__(self) -> Iterator[Any]:
        batches, last = iter(self._batches), None
        while True:
            batch = next(batches, None)
            rows = 0 if batch is None else find_batch_size(batch)
            self._rows = gathered(rows)
            if not any(self._rows):
                return
            last = last if batch is None else batch
            if last is None:
                raise ValueError(
                    f"rank {dist.get_rank()} has no rows of the evaluation dataset, which is smaller than the number "
                    "of workers; evaluate on more rows, or with fewer workers"
                )
            yield last

    def gather(self, accelerator: Any, values: Any) -> Any:
        """The rows of all workers, in the order of ranks."""
        gathered = accelerator.gather(pad_across_processes(values, dim=0))
        largest = find_batch_size(gathered) // len(self._rows)
        # The loss of a batch is repeated TrainingArguments(per_device_eval_batch_size) times, which need not be the
        # size of the shard's batches. It counts once for every row.
        kept = [rank * largest + row % largest for rank, rows in enumerate(self._rows) for row in range(rows)]
        return recursively_apply(lambda tensor: tensor[kept], gathered)


def evaluation_loader(batches: Any) -> DataLoader:
    return as_loader(EvenEvaluation(batches))


def as_loader(batches: IterableDataset) -> DataLoader:
    """Each batch as it is: the shard has formed it already, for this worker alone."""
    return DataLoader(batches, batch_size=1, collate_fn=_only)


def _only(batches: list[Any]) -> Any:
    (batch,) = batches
    return batch
