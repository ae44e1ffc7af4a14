"""The script of a Trireme user; `--torch-first` imports torch before Trireme."""

import os
import sys
import time

if "--torch-first" in sys.argv:
    import torch  # noqa: F401
from trireme import ScalingConfig
from trireme.torch import TorchTrainer


def stamp(name: str) -> None:
    with open(os.path.join(os.environ["BENCH_FOLDER"], name), "w") as file:
        file.write(repr(time.time()))


def train_func(config: dict) -> None:
    import torch.distributed as dist

    dist.barrier()
    stamp(f"fit_{config['fit']}_rank_{dist.get_rank()}")


if __name__ == "__main__":
    for fit in range(int(os.environ["BENCH_FITS"])):
        stamp(f"fit_{fit}_begin")
        TorchTrainer(train_func, train_loop_config={"fit": fit}, scaling_config=ScalingConfig(num_workers=4)).fit()
