"""The same for Ray Train, with few calls because each takes seconds."""

import json
import os
import time

import ray
import ray.train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

CALLS = 5


def train_func() -> None:
    ray.train.report({"step": -1})  # waits for all ranks
    began = time.perf_counter()
    for step in range(CALLS):
        ray.train.report({"loss": 0.5, "accuracy": 0.75, "step": step})
    seconds = time.perf_counter() - began
    rank = ray.train.get_context().get_world_rank()
    with open(os.path.join(os.environ["BENCH_FOLDER"], f"rank_{rank}"), "w") as file:
        json.dump(CALLS / seconds, file)


if __name__ == "__main__":
    ray.init(num_cpus=3, include_dashboard=False, _node_ip_address="127.0.0.1")
    DataParallelTrainer(
        train_func,
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(storage_path=os.environ["BENCH_FOLDER"]),
    ).fit()
    ray.shutdown()
