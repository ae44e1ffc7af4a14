"""A script of 2023: ray.air.session, trainer_resources."""

import os
import tempfile

from compat_record import STORAGE, described, record
from ray.air import RunConfig, ScalingConfig, session
from ray.air.config import CheckpointConfig
from ray.train import Checkpoint
from ray.train.torch import TorchTrainer


def train_func(config):
    for step in range(3):
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if session.get_world_rank() == 0:
                with open(os.path.join(folder, "step"), "w") as file:
                    file.write(str(step))
                checkpoint = Checkpoint.from_directory(folder)
            session.report({"step": step, "world": session.get_world_size(), "lr": config["lr"]}, checkpoint=checkpoint)
    return "discarded"


if __name__ == "__main__":
    scaling = ScalingConfig(num_workers=2, trainer_resources={"CPU": 0})
    result = TorchTrainer(
        train_func,
        train_loop_config={"lr": 0.5},
        scaling_config=scaling,
        run_config=RunConfig(
            name="v1_air_session", storage_path=STORAGE, checkpoint_config=CheckpointConfig(num_to_keep=2)
        ),
    ).fit()
    record(
        result=described(result, first_version=True),
        config=result.config["train_loop_config"],
        kept=sorted(name for name in os.listdir(result.path) if name.startswith("checkpoint_")),
        total=scaling.total_resources,
        gpu=[ScalingConfig(use_gpu=True).num_cpus_per_worker, ScalingConfig(use_gpu=True).num_gpus_per_worker],
    )
