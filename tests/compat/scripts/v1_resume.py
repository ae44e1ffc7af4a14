"""resume_from_checkpoint, metadata and the getters of trials."""

import os
import tempfile

import ray.train
from compat_record import STORAGE, described, record
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train_func(config):
    context = ray.train.get_context()
    checkpoint = ray.train.get_checkpoint()
    first = -1
    if checkpoint:
        with checkpoint.as_directory() as folder, open(os.path.join(folder, "step")) as file:
            first = int(file.read())
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "step"), "w") as file:
            file.write(str(first + 1))
        ray.train.report(
            {
                "first": first,
                "metadata": context.get_metadata(),
                "experiment": context.get_experiment_name(),
                "trial": context.get_trial_name(),
                "trial_id": context.get_trial_id(),
                "folder": os.path.basename(context.get_trial_dir()),
                "shard": str(ray.train.get_dataset_shard("none")),
            },
            checkpoint=Checkpoint.from_directory(folder),
        )


def run(**options):
    return TorchTrainer(
        train_func,
        train_loop_config={},
        scaling_config=ScalingConfig(num_workers=1, trainer_resources={"CPU": 0}),
        run_config=RunConfig(name="v1_resume", storage_path=STORAGE),
        **options,
    ).fit()


if __name__ == "__main__":
    first = run()
    second = run(resume_from_checkpoint=first.checkpoint, metadata={"by": "hand"})
    record(
        first=described(first, first_version=True),
        second=described(second, first_version=True),
        metadata=second.checkpoint.get_metadata(),
        new_folder=first.path != second.path,
    )
