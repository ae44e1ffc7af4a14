"""Errors of the first version, and restore()."""

import os
import tempfile

import ray.train
from compat_record import STORAGE, record
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.base_trainer import TrainingFailedError
from ray.train.torch import TorchTrainer


def train_func(config):
    checkpoint = ray.train.get_checkpoint()
    first = 0
    if checkpoint:
        with checkpoint.as_directory() as folder, open(os.path.join(folder, "step")) as file:
            first = int(file.read()) + 1
    for step in range(first, 3):
        if step == 1 and not os.path.exists(config["repaired"]):
            raise ValueError("a broken step")
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "step"), "w") as file:
                file.write(str(step))
            ray.train.report({"step": step, "first": first}, checkpoint=Checkpoint.from_directory(folder))


if __name__ == "__main__":
    repaired = os.path.join(tempfile.mkdtemp(), "repaired")
    trainer = TorchTrainer(
        train_func,
        train_loop_config={"repaired": repaired},
        scaling_config=ScalingConfig(num_workers=1, trainer_resources={"CPU": 0}),
        run_config=RunConfig(
            name="v1_failures", storage_path=STORAGE, failure_config=FailureConfig(max_failures=0), verbose=0
        ),
    )
    try:
        trainer.fit()
    except TrainingFailedError as error:
        caught = error
    folder = os.path.join(STORAGE, "v1_failures")
    can = [TorchTrainer.can_restore(folder), TorchTrainer.can_restore(STORAGE)]
    open(repaired, "w").close()
    result = TorchTrainer.restore(folder).fit()
    record(
        kind=type(caught).__name__,
        runtime=isinstance(caught, RuntimeError),
        text="a broken step" in str(caught.__cause__),
        can=can,
        metrics={name: result.metrics[name] for name in ("step", "first")},
        checkpoint=os.path.basename(result.checkpoint.path),
        rows=len(result.metrics_dataframe),
    )
