"""The same job for Ray Train."""

import os
import time

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train_func() -> None:
    import torch.distributed as dist

    dist.barrier()
    folder = os.environ["BENCH_FOLDER"]
    open(os.path.join(folder, f"inside_{dist.get_rank()}"), "w").close()
    while not os.path.exists(os.path.join(folder, "measured")):
        time.sleep(0.05)


if __name__ == "__main__":
    ray.init(num_cpus=5, include_dashboard=False, _node_ip_address="127.0.0.1")
    TorchTrainer(
        train_func,
        scaling_config=ScalingConfig(num_workers=4),
        run_config=RunConfig(storage_path=os.environ["BENCH_FOLDER"]),
    ).fit()
    ray.shutdown()
