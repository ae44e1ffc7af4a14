"""Metrics for TensorBoard and for a custom tracker."""

from pathlib import Path

import trireme
from trireme import DataParallelTrainer, RunConfig, ScalingConfig, UserCallback
from trireme.integrations.tensorboard import TensorBoardCallback


class Worst(UserCallback):
    """Remembers the worst loss of any rank."""

    def before_run(self, run_context):
        self.loss = 0.0

    def after_report(self, run_context, metrics, checkpoint):
        self.loss = max([self.loss, *(of_rank["train"]["loss"] for of_rank in metrics)])

    def after_run(self, run_context, error):
        print(f"worst loss of all ranks: {self.loss}")


def train(config):
    rank = trireme.get_context().get_world_rank()
    for step in range(5):
        trireme.report({"train": {"loss": config["lr"] * (rank + 1) / (step + 1)}})


if __name__ == "__main__":
    result = DataParallelTrainer(
        train,
        train_loop_config={"lr": 0.5},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="trackers", callbacks=[TensorBoardCallback(), Worst()]),
    ).fit()
    files = list(Path(result.path, "tensorboard").iterdir())
    print(f"{len(files)} file in {result.path}/tensorboard; metrics.csv has {result.metrics['train']} last")
