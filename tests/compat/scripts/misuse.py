"""What Ray Train refuses: which error comes from where."""

import os
import tempfile

import ray.data
import ray.train
import ray.train.collective
from compat_record import STORAGE, record
from ray.train import (
    Checkpoint,
    CheckpointConfig,
    CheckpointUploadMode,
    DataConfig,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    ValidationTaskConfig,
)
from ray.train.torch import TorchConfig, TorchTrainer


def raises(expected, ask):
    """Whether it raises this class of error, or one that is derived from it."""
    try:
        ask()
    except Exception as error:
        return isinstance(error, expected) or type(error).__name__
    return "no error"


def train_func(config):
    import torch

    folder = tempfile.mkdtemp()
    checkpoint = Checkpoint.from_directory(folder)
    outside = Checkpoint.from_directory(tempfile.mkdtemp())
    gone = Checkpoint.from_directory(os.path.join(folder, "gone"))
    train = ray.train
    return {
        "tensor in metrics": raises(ValueError, lambda: train.report({"loss": torch.tensor(1.0)})),
        "tensor deep in metrics": raises(ValueError, lambda: train.report({"a": [{"b": (torch.tensor(1.0),)}]})),
        "validation without checkpoint": raises(ValueError, lambda: train.report({}, validation=True)),
        "validation without a function": raises(
            ValueError, lambda: train.report({}, checkpoint=checkpoint, validation=True)
        ),
        "no upload from elsewhere": raises(
            ValueError,
            lambda: train.report({}, checkpoint=outside, checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD),
        ),
        "checkpoint that is gone": raises(FileNotFoundError, lambda: train.report({}, checkpoint=gone)),
        "upload function that returns nothing": raises(
            ValueError,
            lambda: train.report({}, checkpoint=checkpoint, checkpoint_upload_fn=lambda checkpoint, name: None),
        ),
        "unknown dataset": raises(KeyError, lambda: train.get_dataset_shard("other")),
        "dataset": train.get_dataset_shard("train").schema().names,
    }


def two_parameters(config, other):
    pass


def returns_tensor():
    import torch

    return torch.zeros(1)


def no_op():
    pass


def fit(function, **options):
    return TorchTrainer(
        function,
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(name=f"misuse_{function.__name__}", storage_path=STORAGE),
        **options,
    ).fit()


if __name__ == "__main__":
    inside = fit(train_func, datasets={"train": ray.data.range(4)}).return_value
    empty = tempfile.mkdtemp()
    result = Result(metrics=None, checkpoint=None, error=None, path=empty)
    record(
        inside=inside,
        outside=[
            raises(RuntimeError, lambda: ray.train.report({})),
            raises(RuntimeError, lambda: ray.train.get_checkpoint()),
            raises(RuntimeError, lambda: ray.train.get_context().get_world_rank()),
            raises(RuntimeError, lambda: ray.train.get_dataset_shard("train")),
            raises(RuntimeError, lambda: ray.train.collective.barrier()),
        ],
        trainer=[
            raises(ValueError, lambda: fit(two_parameters)),
            raises(Exception, lambda: fit(returns_tensor)),
            raises(TypeError, lambda: TorchTrainer(train_func, dataset_config=DataConfig(datasets_to_split="train"))),
            raises(TypeError, lambda: TorchTrainer(train_func, nothing=1)),
            raises(Exception, lambda: fit(no_op, torch_config=TorchConfig(init_method="file"))),
        ],
        configs=[
            raises(ValueError, lambda: ScalingConfig(num_workers="2")),
            raises(ValueError, lambda: ScalingConfig(num_workers=(1, 2, 3))),
            raises(ValueError, lambda: ScalingConfig(num_workers=(-1, 2))),
            raises(ValueError, lambda: ScalingConfig(elastic_resize_monitor_interval_s=-1)),
            raises(ValueError, lambda: ScalingConfig(use_gpu=False, resources_per_worker={"CPU": 1, "GPU": 1})),
            raises(ValueError, lambda: CheckpointConfig(num_to_keep=-1)),
            raises(ValueError, lambda: RunConfig(callbacks=[object()])),
            raises((AssertionError, ValueError), lambda: ValidationTaskConfig(timeout_s=0)),
            FailureConfig(max_failures=-1).max_failures,
        ],
        result=[
            raises(RuntimeError, lambda: Result.from_path(empty)),
            raises(RuntimeError, lambda: Result.from_path(os.path.join(empty, "gone"))),
            raises(RuntimeError, lambda: result.get_best_checkpoint("loss", "max")),
        ],
        checkpoint=[
            raises(FileNotFoundError, lambda: Checkpoint.from_directory("/nowhere").to_directory()),
            raises(TypeError, lambda: Checkpoint.from_directory(tempfile.mkdtemp()).set_metadata({"a": object()})),
            raises(TypeError, lambda: os.fspath(Checkpoint.from_directory(empty))),
            Checkpoint.from_directory(empty).get_metadata(),
        ],
    )
