"""An elastic run, and one whose rank fails and resumes with all ranks' checkpoints."""

import os
import tempfile

import ray.train
from compat_record import STORAGE, described, record
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train_func(config):
    context = ray.train.get_context()
    rank, first = context.get_world_rank(), 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder, open(os.path.join(folder, f"rank_{rank}")) as file:
            first = int(file.read()) + 1
    for step in range(first, 4):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, f"rank_{rank}"), "w") as file:
                file.write(str(step))
            metrics = {"step": step, "nested": {"score": [3, 9, 5, 7][step]}}
            ray.train.report(metrics, checkpoint=Checkpoint.from_directory(folder))
        if step == 1 and first == 0:
            ray.train.get_all_reported_checkpoints()
            if rank == 1:
                os._exit(7)
    return context.get_world_size()


if __name__ == "__main__":
    result = TorchTrainer(
        train_func,
        train_loop_config={},
        scaling_config=ScalingConfig(num_workers=(1, 2), elastic_resize_monitor_interval_s=600),
        run_config=RunConfig(
            name="elastic",
            storage_path=STORAGE,
            failure_config=FailureConfig(max_failures=-1),
            checkpoint_config=CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="nested/score"),
        ),
    ).fit()
    with result.checkpoint.as_directory() as folder:
        record(result=described(result), files=sorted(name for name in os.listdir(folder) if name[0] != "."))
