"""The same name continues a run."""

import os
import tempfile

import ray.train
from compat_record import STORAGE, described, name_of, record
from ray.train import Checkpoint, CheckpointConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train_func(config):
    checkpoint = ray.train.get_checkpoint()
    first = 0
    if checkpoint:
        with checkpoint.as_directory() as folder, open(os.path.join(folder, "step")) as file:
            first = int(file.read()) + 1
    for step in range(first, first + config["steps"]):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "step"), "w") as file:
                file.write(str(step))
            ray.train.report({"step": step}, checkpoint=Checkpoint.from_directory(folder))
    return first


def run():
    return TorchTrainer(
        train_func,
        train_loop_config={"steps": 2},
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(
            name="resume_by_name", storage_path=STORAGE, checkpoint_config=CheckpointConfig(num_to_keep=3)
        ),
    ).fit()


if __name__ == "__main__":
    first, second = run(), run()
    record(
        first=described(first), second=described(second), same=name_of(first.checkpoint) != name_of(second.checkpoint)
    )
