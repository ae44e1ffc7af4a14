"""The same job for Ray Train."""

import os
import time

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def stamp(name: str) -> None:
    with open(os.path.join(os.environ["BENCH_FOLDER"], name), "w") as file:
        file.write(repr(time.time()))


def train_func(config: dict) -> None:
    import torch.distributed as dist

    dist.barrier()
    stamp(f"fit_{config['fit']}_rank_{dist.get_rank()}")


if __name__ == "__main__":
    ray.init(num_cpus=5, include_dashboard=False, _node_ip_address="127.0.0.1")
    for fit in range(int(os.environ["BENCH_FITS"])):
        stamp(f"fit_{fit}_begin")
        TorchTrainer(
            train_func,
            train_loop_config={"fit": fit},
            scaling_config=ScalingConfig(num_workers=4),
            run_config=RunConfig(storage_path=os.environ["BENCH_FOLDER"]),
        ).fit()
    ray.shutdown()
