"""prepare_data_loader() compared with a DataLoader and a DistributedSampler, in turn within one process."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import trireme
from trireme import ScalingConfig
from trireme.torch import TorchTrainer, prepare_data_loader

SAMPLES = int(os.environ["BENCH_SAMPLES"])
REPEAT = int(os.environ["BENCH_REPEAT"])
BATCH, RANKS = 32, 2
SKIPPED = SAMPLES * 9 // 10 // (BATCH * RANKS)  # batches
BLOCK, BLOCKS = 20, 150  # of batches
BEGINS = 8  # of epochs


class Loaders:
    def __init__(self) -> None:
        data = TensorDataset(torch.arange(SAMPLES * 8.0).reshape(SAMPLES, 8), torch.zeros(SAMPLES))
        self.prepared = prepare_data_loader(DataLoader(data, batch_size=BATCH, shuffle=True))
        self.sampler = DistributedSampler(data)
        self.plain = DataLoader(data, batch_size=BATCH, sampler=self.sampler)
        self.state = self.prepared.state_dict()
        self.times: dict[str, list[float]] = {}

    def timed(self, name: str, work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> Any:
        began = clock()
        made = work()
        self.times.setdefault(name, []).append(clock() - began)
        return made

    def batches(self) -> None:
        """Measures CPU time: blocks are so short that other load hits a block completely or not at all."""
        prepared, plain = iter(self.prepared), iter(self.plain)
        next(prepared), next(plain)
        forms = [("batches, prepared", prepared), ("batches, plain", plain)]
        for number in range(BLOCKS):
            for name, batches in forms if number % 2 else reversed(forms):
                self.timed(name, lambda batches=batches: [next(batches) for _ in range(BLOCK)], time.thread_time)

    def begin(self, epoch: int) -> None:
        def prepared() -> Any:
            self.prepared.load_state_dict({**self.state, "epoch": epoch})
            return next(iter(self.prepared))

        def plain() -> Any:
            self.sampler.set_epoch(epoch)
            return next(iter(self.plain))

        self.compare("begin", prepared, plain, epoch)

    def resume(self, epoch: int) -> None:
        def prepared() -> Any:
            self.prepared.load_state_dict({**self.state, "epoch": epoch, "samples": SKIPPED * BATCH * RANKS})
            return next(iter(self.prepared))

        def plain() -> Any:
            self.sampler.set_epoch(epoch)
            batches = iter(self.plain)
            for _ in range(SKIPPED):
                next(batches)
            return next(batches)

        self.compare("resume", prepared, plain, epoch)

    def compare(self, what: str, prepared: Callable[[], Any], plain: Callable[[], Any], number: int) -> None:
        forms = [(f"{what}, prepared", prepared), (f"{what}, plain", plain)]
        made = [self.timed(*form) for form in (forms if number % 2 else reversed(forms))]
        assert made[0][0].equal(made[1][0]), "the loaders returned different batches"


def train() -> None:
    if trireme.get_context().get_world_rank() != 0:
        return
    torch.set_num_threads(1)
    loaders = Loaders()
    for number in range(REPEAT):
        for begin in range(BEGINS):
            loaders.begin(number * BEGINS + begin)
        loaders.resume(number)
        loaders.batches()
    Path(os.environ["BENCH_FOLDER"], "times.json").write_text(json.dumps(loaders.times))


if __name__ == "__main__":
    TorchTrainer(train, scaling_config=ScalingConfig(num_workers=RANKS)).fit()
