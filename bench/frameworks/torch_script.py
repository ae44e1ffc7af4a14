"""A small network with plain DistributedDataParallel: what the frameworks are compared with after a kill."""

from __future__ import annotations

import torch
from harness import STEPS, Config, Steps, main, set_rank_variables
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train(config: Config) -> None:
    done = Steps(config, set_rank_variables(config))
    if config["mode"] == "launcher":
        torch.distributed.init_process_group("gloo")
    rows = TensorDataset(torch.randn(64 * STEPS, 64), torch.randint(10, (64 * STEPS,)))
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    if config["mode"] == "trireme":
        from trireme.torch import prepare_data_loader

        loader = prepare_data_loader(DataLoader(rows, batch_size=32, shuffle=True))
    else:
        loader = DataLoader(rows, batch_size=32, sampler=DistributedSampler(rows))
    for batch, targets in loader:
        torch.nn.functional.cross_entropy(model(batch), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        done()
    done.end(torch.distributed.barrier)


if __name__ == "__main__":
    main(train)
