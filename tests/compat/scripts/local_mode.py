"""num_workers=0: the function runs in this process."""

import tempfile

import ray.train
from compat_record import record
from ray.train import Checkpoint, ScalingConfig
from ray.train.torch import TorchTrainer

CALLS = []


def train_func(config):
    context = ray.train.get_context()
    CALLS.append([context.get_world_rank(), context.get_world_size(), context.get_local_rank()])
    ray.train.report({"loss": 2})
    ray.train.report({"loss": 1}, checkpoint=Checkpoint.from_directory(tempfile.mkdtemp()))
    return config["x"]


if __name__ == "__main__":
    result = TorchTrainer(train_func, train_loop_config={"x": 5}, scaling_config=ScalingConfig(num_workers=0)).fit()
    try:
        TorchTrainer(lambda: 1 / 0, scaling_config=ScalingConfig(num_workers=0)).fit()
    except ZeroDivisionError:
        error = "ZeroDivisionError"
    record(
        calls=CALLS,
        metrics=result.metrics,
        checkpoint=result.checkpoint is not None,
        path=result.path,
        value=result.return_value,
        error=error,
    )
