"""Horovod with PyTorch on two workers: handwritten digits, in a script for hvd.elastic.

Kill a worker while it runs (`kill -9`, or --kill): training continues from the last commit.
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits

import trireme
from trireme import FailureConfig, RunConfig, ScalingConfig
from trireme.horovod import HorovodTrainer

BATCH = 32  # of each worker


def train(config: dict[str, Any]) -> float:
    hvd.init()
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.AdamW(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
    )

    @hvd.elastic.run
    def epochs(state: Any) -> None:
        if state.epoch > 0 and hvd.rank() == 0:
            print(f"continuing from epoch {state.epoch}")
        while state.epoch < config["epochs"]:
            order = torch.randperm(1500, generator=torch.Generator().manual_seed(state.epoch))
            for step, rows in enumerate(order.split(BATCH * hvd.size())):
                mine = rows[hvd.rank() :: hvd.size()]
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(inputs[mine]), targets[mine]).backward()
                optimizer.step()
                first = trireme.get_context()._attempt == 0
                if config["kill"] and first and hvd.rank() == 1 and (state.epoch, step) == (2, 10):
                    os.kill(os.getpid(), signal.SIGKILL)
            state.epoch += 1
            state.commit()

    epochs(hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0))
    with torch.no_grad():
        return (model(inputs[1500:]).argmax(1) == targets[1500:]).float().mean().item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--kill", action="store_true", help="kill rank 1 in the third epoch, once")
    parser.add_argument("--name", default=None)
    given = parser.parse_args()
    result = HorovodTrainer(
        train,
        train_loop_config={"epochs": given.epochs, "kill": given.kill},
        scaling_config=ScalingConfig(num_workers=given.num_workers),
        run_config=RunConfig(name=given.name, failure_config=FailureConfig(max_failures=1)),
    ).fit()
    print(f"accuracy {result.return_value:.1%} after {given.epochs} epochs")
