"""The same state through Ray Train's report(): torch.save() into a folder, which it copies to its storage."""

import json
import os
import tempfile
import time
from pathlib import Path

import ray
import ray.train
import torch
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

TENSORS = 64


def train_func() -> None:
    size = int(os.environ["BENCH_BYTES"]) // TENSORS // 4
    state = {f"layer_{i}": torch.randn(size) for i in range(TENSORS)}
    times = []
    for _ in range(int(os.environ["BENCH_REPEAT"])):
        os.sync()
        with tempfile.TemporaryDirectory(dir=os.environ["BENCH_FOLDER"]) as folder:
            began = time.perf_counter()
            torch.save(state, Path(folder, "state.pt"))
            ray.train.report({"x": 1}, checkpoint=ray.train.Checkpoint.from_directory(folder))
            times.append(time.perf_counter() - began)
    with open(os.path.join(os.environ["BENCH_FOLDER"], "times.json"), "w") as file:
        json.dump({"Ray Train report": times}, file)


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
    keep = ray.train.CheckpointConfig(num_to_keep=1)
    DataParallelTrainer(
        train_func,
        scaling_config=ray.train.ScalingConfig(num_workers=1),
        run_config=ray.train.RunConfig(storage_path=os.environ["BENCH_FOLDER"], checkpoint_config=keep),
    ).fit()
    ray.shutdown()
