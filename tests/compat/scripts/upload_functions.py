"""NO_UPLOAD and checkpoint_upload_fn."""

import os
import shutil
import tempfile

import ray.train
from compat_record import STORAGE, described, name_of, record
from ray.train import Checkpoint, CheckpointUploadMode, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def store(checkpoint, name):
    target = ray.train.get_context().get_storage().build_checkpoint_path_from_name(name)
    shutil.copytree(checkpoint.path, target, dirs_exist_ok=True)
    return Checkpoint(target)


def train_func():
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, "a"), "w") as file:
        file.write("a")
    ray.train.report(
        {"step": 0}, Checkpoint.from_directory(folder), checkpoint_dir_name="by_function", checkpoint_upload_fn=store
    )
    storage = ray.train.get_context().get_storage()
    placed = storage.build_checkpoint_path_from_name("placed")
    os.makedirs(placed)
    with open(os.path.join(placed, "b"), "w") as file:
        file.write("b")
    ray.train.report({"step": 1}, Checkpoint(placed), checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)
    errors = []
    import torch

    for metrics, options in (
        ({"x": torch.zeros(1)}, {}),
        ({"x": 1}, {"validation": True}),
    ):
        try:
            ray.train.report(metrics, **options)
        except Exception as error:
            errors.append(type(error).__name__)
    return errors, name_of(ray.train.get_checkpoint())


if __name__ == "__main__":
    result = TorchTrainer(
        train_func,
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(name="upload_functions", storage_path=STORAGE),
    ).fit()
    record(result=described(result))
