"""A small network with Horovod and torch."""

from __future__ import annotations

import os

import horovod.torch as hvd
import torch
from harness import STEPS, Config, Steps, main


def train(config: Config) -> None:
    hvd.init()
    done = Steps(config, hvd.rank())
    inputs, targets = torch.randn(STEPS, 32, 64), torch.randint(10, (STEPS, 32))
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.AdamW(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
    )
    for batch, labels in zip(inputs, targets, strict=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch), labels).backward()
        optimizer.step()
        done()
    done.end(hvd.barrier)


if __name__ == "__main__":
    os.environ["RAY_TRAIN_V2_ENABLED"] = "0"  # the newer API of Ray Train has no HorovodTrainer
    main(train, "horovod.HorovodTrainer")
