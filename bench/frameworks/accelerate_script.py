"""A small network with Accelerate."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from harness import STEPS, Config, Steps, main, set_rank_variables
from torch.utils.data import DataLoader, TensorDataset


def train(config: Config) -> None:
    done = Steps(config, set_rank_variables(config))
    accelerator = Accelerator(cpu=True)
    rows = TensorDataset(torch.randn(64 * STEPS, 64), torch.randint(10, (64 * STEPS,)))
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(network, optimizer, DataLoader(rows, batch_size=32))
    for batch, targets in loader:
        accelerator.backward(torch.nn.functional.cross_entropy(model(batch), targets))
        optimizer.step()
        optimizer.zero_grad()
        done()
    done.end(torch.distributed.barrier)


if __name__ == "__main__":
    main(train)
