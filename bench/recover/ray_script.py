"""The loop under Ray Train."""

import os
import tempfile
from pathlib import Path

import ray
import ray.train
import torch
from loop import State, train
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model


def saved() -> State | None:
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return None
    with checkpoint.as_directory() as folder:
        return torch.load(Path(folder, "state.pt"))


def save(step: int, state: State | None) -> None:
    if state is None:
        ray.train.report({"step": step})
        return
    with tempfile.TemporaryDirectory(dir=os.environ["BENCH_FOLDER"]) as folder:
        torch.save(state, Path(folder, "state.pt"))
        ray.train.report({"step": step}, checkpoint=Checkpoint.from_directory(folder))


def train_func() -> None:
    context = ray.train.get_context()
    train(context.get_world_rank(), context.get_world_size(), prepare_model, saved, save)


if __name__ == "__main__":
    ray.init(num_cpus=3, include_dashboard=False, _node_ip_address="127.0.0.1")
    TorchTrainer(
        train_func,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=os.environ["BENCH_FOLDER"], failure_config=FailureConfig(max_failures=-1)),
    ).fit()
    ray.shutdown()
