"""The loop under torchrun, with its own checkpoints."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from loop import State, train
from torch.nn.parallel import DistributedDataParallel

_FILE = Path(os.environ["BENCH_FOLDER"], "state.pt")


def saved() -> State | None:
    return torch.load(_FILE) if _FILE.exists() else None


def save(step: int, state: State | None) -> None:
    if state is not None:
        torch.save(state, _FILE.with_suffix(".new"))
        _FILE.with_suffix(".new").rename(_FILE)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank(), dist.get_world_size(), DistributedDataParallel, saved, save)
    dist.destroy_process_group()
