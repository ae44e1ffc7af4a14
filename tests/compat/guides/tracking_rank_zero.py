"""The guides for experiment tracking and monitoring: rank 0 logs, metrics of all workers, a callback of the user."""

import os
import pathlib
import tempfile
from pprint import pprint
from typing import Any

import ray.train
import ray.train.torch
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig, UserCallback
from ray.train.torch import TorchTrainer

log_folder = tempfile.mkdtemp()


class CustomMetricsCallback(UserCallback):
    def after_report(self, run_context, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None):
        rank_0_metrics = metrics[0]
        pprint(rank_0_metrics)
        with open(os.path.join(log_folder, "callback"), "a") as file:
            file.write(f"{run_context.run_config.name} {[each['loss'] for each in metrics]} {checkpoint is not None}\n")


def train_func():
    context = ray.train.get_context()
    if context.get_world_rank() == 0:
        log_path = os.path.join(log_folder, context.get_experiment_name())
    for epoch in range(2):
        loss = torch.tensor(float(epoch + context.get_world_rank()))
        torch.distributed.all_reduce(loss, op=torch.distributed.ReduceOp.SUM)
        if context.get_world_rank() == 0:
            with open(log_path, "a") as file:
                file.write(f"{epoch} {loss.item()}\n")
        ray.train.report({"loss": loss.item(), "epoch": epoch})
    ray.train.collective.barrier()
    return context.get_world_size()


if __name__ == "__main__":
    import ray.train.collective

    trainer = TorchTrainer(
        train_func,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="tracked", callbacks=[CustomMetricsCallback()]),
    )
    result = trainer.fit()
    assert result.return_value == 2 and not result.metrics
    seen = pathlib.Path(log_folder)
    assert (seen / "callback").read_text() == "tracked [1.0, 1.0] False\ntracked [3.0, 3.0] False\n"
    assert (seen / "tracked").read_text() == "0 1.0\n1 3.0\n"
    print("GUIDE DONE")
