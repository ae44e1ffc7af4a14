"""Checkpoints validated while training continues."""

import os
import tempfile

import ray.train
from compat_record import STORAGE, described, name_of, record
from ray.train import Checkpoint, RunConfig, ScalingConfig, ValidationConfig, ValidationTaskConfig
from ray.train.torch import TorchTrainer


def validate(checkpoint, factor=1):
    with checkpoint.as_directory() as folder, open(os.path.join(folder, "score")) as file:
        return {"score": float(file.read()) * factor}


def train_func():
    for step in range(2):
        folder = tempfile.mkdtemp()
        with open(os.path.join(folder, "score"), "w") as file:
            file.write(str(step + 1))
        validation = True if step == 0 else ValidationTaskConfig(fn_kwargs={"factor": 10})
        ray.train.report(
            {"step": step}, Checkpoint.from_directory(folder), checkpoint_dir_name=f"step_{step}", validation=validation
        )
    return [
        [name_of(each.checkpoint), each.metrics, each.status.name] for each in ray.train.get_all_reported_checkpoints()
    ]


if __name__ == "__main__":
    result = TorchTrainer(
        train_func,
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(name="validation", storage_path=STORAGE),
        validation_config=ValidationConfig(fn=validate, task_config=ValidationTaskConfig(fn_kwargs={"factor": 2})),
    ).fit()
    record(result=described(result))
