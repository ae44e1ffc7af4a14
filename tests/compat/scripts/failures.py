"""A failure within max_failures, and one beyond it."""

import os
import tempfile

import ray.train
from compat_record import STORAGE, described, record
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig, TrainingFailedError, WorkerGroupError
from ray.train.torch import TorchTrainer


def train_func(config):
    checkpoint = ray.train.get_checkpoint()
    first = 0
    if checkpoint:
        with checkpoint.as_directory() as folder, open(os.path.join(folder, "step")) as file:
            first = int(file.read()) + 1
    for step in range(first, 4):
        if step == 2 and first == 0:
            raise ValueError("a broken step")
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "step"), "w") as file:
                file.write(str(step))
            rank = ray.train.get_context().get_world_rank()
            ray.train.report({"step": step}, checkpoint=Checkpoint.from_directory(folder) if rank == 0 else None)


def fails():
    if ray.train.get_context().get_world_rank() == 1:
        raise KeyError("only rank 1")


if __name__ == "__main__":
    scaling = ScalingConfig(num_workers=2)
    run_config = RunConfig(name="failures", storage_path=STORAGE, failure_config=FailureConfig(max_failures=1))
    result = TorchTrainer(train_func, train_loop_config={}, scaling_config=scaling, run_config=run_config).fit()
    try:
        TorchTrainer(fails, scaling_config=scaling, run_config=RunConfig(name="fails", storage_path=STORAGE)).fit()
    except TrainingFailedError as error:
        caught = error
    record(
        result=described(result),
        kind=type(caught).__name__,
        group=isinstance(caught, WorkerGroupError),
        ranks=sorted(caught.worker_failures),
        cause=type(caught.worker_failures[1]).__name__,
        text="only rank 1" in str(caught),
    )
