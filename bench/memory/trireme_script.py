"""A job of 4 torch workers that enter the function and sleep."""

import os
import time

from trireme import ScalingConfig
from trireme.torch import TorchTrainer


def train_func() -> None:
    import torch.distributed as dist

    dist.barrier()
    folder = os.environ["BENCH_FOLDER"]
    open(os.path.join(folder, f"inside_{dist.get_rank()}"), "w").close()
    while not os.path.exists(os.path.join(folder, "measured")):
        time.sleep(0.05)


if __name__ == "__main__":
    TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=4)).fit()
