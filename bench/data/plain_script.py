"""`plain_script.py FORM TASK INPUTS`: the task with only pyarrow, torch and Pillow, in this process."""

import statistics
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import torch
from inputs import IMAGE_BATCH, SIDE
from passes import BATCH, epochs, first_column, in_lists, tell
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset

_DECODES = 5


def tensors(batch: pa.RecordBatch) -> dict[str, torch.Tensor]:
    """Views of Arrow's memory."""
    return {name: torch.from_numpy(batch.column(name).to_numpy()) for name in batch.schema.names}


def scan(folder: str) -> Iterator[dict[str, torch.Tensor]]:
    for batch in ds.dataset(folder).to_batches(batch_size=BATCH):
        yield tensors(batch)


class ArrowBatches(IterableDataset[Any]):
    def __init__(self, folder: str, shuffled: bool) -> None:
        self._folder = folder
        self._shuffled = shuffled
        self._epoch = 0

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        if not self._shuffled:
            yield from scan(self._folder)
            return
        self._epoch += 1
        table = ds.dataset(self._folder).to_table()
        order = np.random.default_rng(self._epoch).permutation(table.num_rows)
        for batch in table.take(pa.array(order)).combine_chunks().to_batches(max_chunksize=BATCH):
            yield tensors(batch)


class Images(Dataset[Any]):
    def __init__(self, folder: Path) -> None:
        self._paths = sorted(folder.iterdir())

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        with Image.open(self._paths[index]) as image:
            small = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        return torch.from_numpy(np.array(small))


def lines(folder: Path) -> Iterator[str]:
    for path in sorted(folder.iterdir()):
        with path.open(encoding="utf-8") as file:
            for line in file:
                yield line.rstrip("\n")


def decode_seconds(folder: Path) -> float:
    """Decodes one row group on one thread."""
    seconds = []
    for _ in range(_DECODES):
        file = pq.ParquetFile(folder / "0.parquet")
        began = time.perf_counter()
        file.read_row_group(0, use_threads=False)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def main(form: str, task: str, inputs: Path) -> None:
    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
    numbers = str(inputs / "numbers")
    if form == "row group":
        tell({"resume_s": [decode_seconds(inputs / "numbers")]})
    elif form == "bare":
        tell(epochs(lambda: scan(numbers), first_column))
    elif form == "loop":
        tell(epochs(lambda: in_lists(lines(inputs / "text"), BATCH), len))
    elif task == "images":
        loader = DataLoader(Images(inputs / "images"), IMAGE_BATCH, num_workers=2, persistent_workers=True)
        tell(epochs(lambda: loader, len))
    else:
        loader = DataLoader(ArrowBatches(numbers, task == "shuffled"), batch_size=None)
        tell(epochs(lambda: loader, first_column))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
